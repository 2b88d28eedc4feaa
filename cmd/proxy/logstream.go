package main

import (
	"context"
	"time"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/upstream/call"
	"sluice/upstream/export"
)

// The methods that records are sent by.
const (
	exportLogs = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
	streamLogs = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"
)

// stream gives the way of a log's records to its collector: one destination, which
// every worker sends its own batches to. The administration port has no worker,
// and so no stream.
func (p *plane) stream(n *config.Node) func(config.LogSink) telemetry.Send {
	return func(sink config.LogSink) telemetry.Send {
		var to *export.Destination
		switch l := sink.(type) {
		case *config.OTelLog:
			to = p.otelCollector(l, n)
		case *config.GRPCLog:
			to = p.logService(l, n)
		}
		return func(worker int, record []byte) {
			if worker < len(p.exports) {
				p.exports[worker].Add(to, record)
			}
		}
	}
}

func (p *plane) otelCollector(l *config.OTelLog, n *config.Node) *export.Destination {
	resource, stat := telemetry.OTelResource(l, n), "access_logs.open_telemetry_access_log."
	if l.StatPrefix != "" {
		stat += l.StatPrefix + "."
	}
	return &export.Destination{Bytes: max(l.BufferSize, 1), Interval: l.FlushInterval, Told: p.told(stat), Lost: lost,
		Request: func(records []byte, _ int) *call.Request {
			return call.Unary(l.Cluster, l.Authority, exportLogs, telemetry.OTelRequest(resource, records), 0)
		}}
}

// logService sends each batch by a stream of its own that ends with it, which the
// service sees as one message.
func (p *plane) logService(l *config.GRPCLog, n *config.Node) *export.Destination {
	identifier := telemetry.ALSIdentifier(l, n)
	return &export.Destination{Bytes: max(l.BufferSize, 1), Interval: l.FlushInterval, Told: p.told("access_logs.grpc_access_log."),
		Request: func(entries []byte, _ int) *call.Request {
			return call.Unary(l.Cluster, l.Authority, streamLogs, telemetry.ALSMessage(l, identifier, entries), 0)
		}}
}

// lost reads what a collector answers: a status that isn't 0 loses all n records.
func lost(a *call.Answer, n int) int {
	answer, status, _ := a.Message()
	if status != 0 {
		return n
	}
	return int(min(telemetry.OTelRejected(answer), uint64(n)))
}

// told counts what became of records, in Envoy's statistics.
func (p *plane) told(stat string) func(*worker.Worker, int, export.Outcome) {
	return func(w *worker.Worker, n int, o export.Outcome) {
		if o == export.Delivered {
			p.reports.count(w, stat+"logs_written", uint64(n))
		} else {
			p.reports.count(w, stat+"logs_dropped", uint64(n))
		}
	}
}

// lastReports bounds the wait for collectors at the end.
const lastReports = 500 * time.Millisecond

// deliver sends the reports that still wait for their batch, while the workers run.
func (p *plane) deliver(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastReports)
	defer cancel()
	done := make(chan struct{}, len(p.workers))
	for i, w := range p.workers {
		w.Post(func() { p.exports[i].Flush(func() { done <- struct{}{} }) })
	}
	for range p.workers {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
	}
}
