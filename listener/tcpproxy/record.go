package tcpproxy

import (
	"net/netip"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/listener/downstream"
)

// Traffic is what has moved so far, in bytes of plaintext, and how often a side
// wasn't read for a while because the other took nothing.
type Traffic struct {
	Received, Sent                  uint64 // downstream
	UpstreamReceived, UpstreamSent  uint64
	Paused, Resumed                 uint32 // reading the downstream
	UpstreamPaused, UpstreamResumed uint32
}

// Progress is what was told of a connection by Report.
type Progress struct {
	Opened         bool
	Received, Sent uint64
}

// Record is what a relayed connection was, or, given by Live.Each, is. It is made
// when somebody wants it: an idle connection doesn't carry it.
type Record struct {
	Traffic
	// Counted and Reported are the reporter's notes of what it has counted already;
	// they last as long as the connection.
	Counted  *Traffic
	Reported *Progress

	Downstream *downstream.Connection
	Filter     *config.TCPProxy
	Cluster    string
	Host       *config.Endpoint
	Log        LogType

	UpstreamLocal, UpstreamRemote netip.AddrPort
	UpstreamTLS                   *telemetry.TLS
	UpstreamPeer                  *Peer

	Start, Connected, End int64 // Worker.Now; Connected is 0 if it never was
	Attempts              int
	Ending
}

// LogType is what a record is made for: %ACCESS_LOG_TYPE%.
type LogType string

// The types; the others come only where the filter asks for them.
const (
	AtEnd     LogType = "TcpConnectionEnd"
	AtStart   LogType = "TcpConnectionStart"
	Connected LogType = "TcpUpstreamConnected"
	Periodic  LogType = "TcpPeriodic"
)

// Ending is how a connection ended.
type Ending struct {
	Flags                         []string // Envoy's response flags, in its order
	TransportFailure              string   // upstream
	DownstreamClose, UpstreamEnds string   // Normal, RemoteReset, LocalReset
	IdleTimeout, MaxDuration      bool     // what ended it
}

// fill makes rec what is known of the connection now.
func (r *relay) fill(rec *Record) {
	*rec = Record{Log: AtEnd, Counted: &r.counted, Downstream: r.d, Filter: r.p.filter, Cluster: r.cluster, Host: r.host,
		UpstreamLocal: r.local, UpstreamTLS: r.tls, UpstreamPeer: r.peer,
		Start: r.d.Start, Connected: r.connectedAt, End: r.p.w.Now(), Attempts: int(r.attempts)}
	if r.remote != nil {
		rec.UpstreamRemote = *r.remote
	}
	if r.ending != nil {
		rec.Ending = *r.ending
	}
	if r.reports != nil {
		rec.Reported = &r.reports.told
	} else {
		rec.Reported = &Progress{}
	}
	r.down.measure(&rec.Received, &rec.Sent, &rec.Paused, &rec.Resumed)
	r.up.measure(&rec.UpstreamReceived, &rec.UpstreamSent, &rec.UpstreamPaused, &rec.UpstreamResumed)
}

// log gives the log a record of what is known now.
func (r *relay) log(t LogType) {
	if r.p.opts.Log == nil {
		return
	}
	rec := &Record{}
	r.fill(rec)
	rec.Log = t
	r.p.opts.Log(rec)
}

// measure reads the side's counters. The pauses of a splice go by without a call.
func (s *side) measure(received, sent *uint64, paused, resumed *uint32) {
	if s.conn == nil {
		return
	}
	*received, *sent = s.conn.BytesRead(), s.conn.BytesWritten()
	stalls := uint32(s.conn.Stalls())
	*paused, *resumed = s.paused+stalls, s.resumed+stalls
}

// Live is the list of a worker's relays, for whoever counts their bytes before
// they end: spliced bytes pass no code that could. It is used on the worker only.
type Live struct{ first *relay }

func (l *Live) add(r *relay) {
	if r.next = l.first; r.next != nil {
		r.next.prev = r
	}
	l.first = r
}

func (l *Live) remove(r *relay) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
}

// Each calls f with every relay's record as of now, which is f's during the call.
func (l *Live) Each(f func(*Record)) {
	var rec Record
	for r := l.first; r != nil; r = r.next {
		r.fill(&rec)
		f(&rec)
	}
}
