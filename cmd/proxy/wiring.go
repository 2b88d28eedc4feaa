package main

import (
	"strings"
	"sync"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/listener/filter/extauthz"
	"sluice/listener/relay"
)

// reporting joins the terminals' records to logs and counters.
type reporting struct {
	plane   *plane
	writers []*telemetry.Writer // by worker
	logs    sync.Map            // *config.TCPProxy or *config.Listener → *telemetry.Log
	relay   *relay.Reports
	named   []map[string]*telemetry.Group // by worker, of network filters' own names
}

func newReporting(p *plane, node *telemetry.Node, env func(string) string) *reporting {
	r := &reporting{plane: p}
	for i := range p.workers {
		r.named = append(r.named, map[string]*telemetry.Group{})
		r.writers = append(r.writers, &telemetry.Writer{Worker: i, Format: telemetry.NewFormatter(env)})
	}
	r.relay = relay.NewReports(p.files, p.clusters, p.sets, env)
	r.relay.Node = node
	return r
}

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

// closed writes the listener's own access log, of every connection.
func (r *reporting) closed(c *downstream.Connection) {
	if m := manager(c.Chain); m != nil && !c.Served {
		r.plane.http.Refused(c.Conn.Worker().Index(), m)
	}
	if len(c.Listener.AccessLogs) == 0 {
		return
	}
	facts, notes := relay.Facts(c), c.Notes()
	w := c.Conn.Worker()
	record := telemetry.Record{Conn: &facts, TCP: true, LogType: "NotSet", Wall: c.BeganAt(), Start: c.Start, End: w.Now(), Remote: c.Src, Details: notes.Details, Dynamic: notes.Dynamic}
	if notes.Flag != "" {
		record.Flags.Set(telemetry.FlagOf(notes.Flag))
	}
	if c.Served {
		record.BytesIn, record.BytesOut = c.Conn.BytesRead(), c.Conn.BytesWritten()
	}
	r.writers[w.Index()].Emit(r.log(c.Listener, c.Listener.AccessLogs), &record)
}

// manager gives the connection manager of a chain, nil for none.
func manager(c *config.FilterChain) *config.HTTPConnectionManager {
	if c == nil {
		return nil
	}
	for _, f := range c.Filters {
		if m, ok := f.(*config.HTTPConnectionManager); ok {
			return m
		}
	}
	return nil
}

// count adds to a statistic that a network filter names itself, such as
// "tcp.rbac.allowed".
func (r *reporting) count(w *worker.Worker, stat string, by uint64) {
	i := w.Index()
	prefix, name, _ := strings.Cut(stat, ".")
	g := r.named[i][prefix]
	if g == nil {
		g = r.plane.sets[i].Add(prefix, "", nil)
		r.named[i][prefix] = g
	}
	for j := range g.Stats {
		if g.Stats[j].Name == name {
			g.Values[j] += by
			return
		}
	}
	g.Stats, g.Values = append(g.Stats, telemetry.Stat{Name: name}), append(g.Values, by)
}

// peerMetadata keeps what a TCP peer told of itself: msg is valid only during the call.
func peerMetadata(d *downstream.Connection, msg []byte) {
	d.Note().PeerMetadata = append([]byte(nil), msg...)
}

// networkFilter makes the network filters that ask clusters; nil: it does nothing.
func (p *plane) networkFilter(w *worker.Worker, _ *config.Listener, _ *config.FilterChain, f config.NetworkFilter) downstream.Filter {
	if x, ok := f.(*config.NetworkExtAuthz); ok {
		return extauthz.NewNetwork(x, p.calls[w.Index()], func(stat string, by uint64) { p.reports.count(w, stat, by) })
	}
	return nil
}
