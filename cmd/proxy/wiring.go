package main

import (
	"sync"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/listener/filter/networkrbac"
	"sluice/listener/relay"
)

// reporting joins the terminals' records to logs and counters.
type reporting struct {
	plane   *plane
	writers []*telemetry.Writer // by worker
	logs    sync.Map            // *config.TCPProxy or *config.Listener → *telemetry.Log
	relay   *relay.Reports
	tcp     []map[string]*telemetry.Group // by worker, of stat prefixes
}

func newReporting(p *plane, env func(string) string) *reporting {
	r := &reporting{plane: p}
	for i := range p.workers {
		r.tcp = append(r.tcp, map[string]*telemetry.Group{})
		r.writers = append(r.writers, &telemetry.Writer{Worker: i, Format: telemetry.NewFormatter(env)})
	}
	r.relay = &relay.Reports{Files: p.files, Clusters: p.clusters, Writers: r.writers, Logs: r.tcpLog, Stats: r.tcpDone}
	return r
}

func (r *reporting) tcpLog(f *config.TCPProxy) *telemetry.Log { return r.log(f, f.AccessLogs) }

// log compiles access loggers once for what they belong to.
func (r *reporting) log(key any, list []*config.AccessLog) *telemetry.Log {
	if l, ok := r.logs.Load(key); ok {
		return l.(*telemetry.Log)
	}
	compiled, err := r.plane.files.Compile(list)
	if err != nil {
		r.plane.log.Error("access log", "error", err)
	}
	l, _ := r.logs.LoadOrStore(key, compiled)
	return l.(*telemetry.Log)
}

// refused logs a connection that no terminal had: the listener's own access log.
func (r *reporting) refused(c *downstream.Connection, flag, details string) {
	if len(c.Listener.AccessLogs) == 0 {
		return
	}
	facts := relay.Facts(c)
	w := c.Conn.Worker()
	record := telemetry.Record{Conn: &facts, TCP: true, LogType: "NotSet", Wall: c.Began, Start: c.Start, End: w.Now(), Remote: c.Src, Details: details}
	if flag != "" {
		record.Flags.Set(telemetry.FlagOf(flag))
	}
	r.writers[w.Index()].Emit(r.log(c.Listener, c.Listener.AccessLogs), &record)
}

// networkFilter makes the filters of a chain that come before its terminal.
func (p *plane) networkFilter(w *worker.Worker, _ *config.Listener, _ *config.FilterChain, f config.NetworkFilter) downstream.Filter {
	switch f := f.(type) {
	case *config.NetworkRBAC:
		return networkrbac.New(f.RBAC, func(string) {})
	}
	return nil
}

// istioTCP counts a finished TCP connection in Istio's metrics, where the chain
// has istio.stats.
func (r *reporting) istioTCP(int, *downstream.Connection, *telemetry.Record) {}
