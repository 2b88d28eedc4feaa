package main

import (
	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/upstream/call"
	"sluice/upstream/export"
)

const exportLogs = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"

// otelStream gives the way of an OpenTelemetry log's records to its collector: one
// destination, which every worker sends its own batches to. The administration
// port has no worker, and so no stream.
func (p *plane) otelStream(n *config.Node) func(*config.OTelLog) telemetry.Send {
	return func(l *config.OTelLog) telemetry.Send {
		resource := telemetry.OTelResource(l, n)
		to := &export.Destination{Bytes: max(l.BufferSize, 1), Interval: l.FlushInterval, Told: p.toldOf(l.StatPrefix), Lost: lost,
			Request: func(records []byte, _ int) *call.Request {
				return call.Unary(l.Cluster, l.Authority, exportLogs, telemetry.OTelRequest(resource, records), 0)
			}}
		return func(worker int, record []byte) {
			if worker < len(p.exports) {
				p.exports[worker].Add(to, record)
			}
		}
	}
}

// lost reads what a collector answers: a status that isn't 0 loses all n records.
func lost(a *call.Answer, n int) int {
	answer, status, _ := a.Message()
	if status != 0 {
		return n
	}
	return int(min(telemetry.OTelRejected(answer), uint64(n)))
}

// toldOf counts what became of records, in Envoy's statistics.
func (p *plane) toldOf(prefix string) func(*worker.Worker, int, export.Outcome) {
	stat := "access_logs.open_telemetry_access_log."
	if prefix != "" {
		stat += prefix + "."
	}
	return func(w *worker.Worker, n int, o export.Outcome) {
		if o == export.Delivered {
			p.reports.count(w, stat+"logs_written", uint64(n))
		} else {
			p.reports.count(w, stat+"logs_dropped", uint64(n))
		}
	}
}
