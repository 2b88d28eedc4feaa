package telemetry

// IstioMetrics are one worker's istio_* metrics. A series is found by a small
// comparable key whose parts are interned (peers, services) and its labels are
// built when it is first seen.
type IstioMetrics struct {
	requests map[IstioKey]*istioSeries
	tcp      map[IstioKey]*istioTCP
	order    []*istioSeries
	orderTCP []*istioTCP
}

// IstioKey identifies a series of one filter's metrics.
type IstioKey struct {
	Scope    *IstioScope
	Peer     *Peer
	Service  *Service
	Host     string // destination_service fallback
	Workload string // endpoint metadata
	Flags    uint64
	Code     uint16
	GRPC     int16 // -2: not gRPC
	Protocol uint8 // of request_protocol: 0 http, 1 grpc, 2 tcp
	MTLS     bool
	URI      string // peer principal
	Local    string // our principal
}

// IstioScope is one configured stats filter: it builds the labels.
type IstioScope struct {
	Labels func(k *IstioKey, flags string) []Label
	// Override changes the labels of one metric (its name has no istio_), or drops
	// it. It must not write into l; nil: nothing is overridden.
	Override func(metric string, l []Label) (labels []Label, drop bool)
}

type istioSeries struct {
	scope         *IstioScope
	labels        []Label
	count         uint64
	duration      histogram
	in, out       histogram
	msgIn, msgOut uint64
	grpc          bool
}

type istioTCP struct {
	scope                      *IstioScope
	labels                     []Label
	opened, closed, sent, recv uint64
}

// bounds are Envoy's default histogram buckets.
var bounds = [...]float64{0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 300000, 600000, 1800000, 3600000}

// Bounds gives the upper bounds of histogram buckets; +Inf is implied after
// the last.
func Bounds() []float64 { b := bounds; return b[:] }

type histogram struct {
	n   [len(bounds) + 1]uint64
	sum float64
}

func (h *histogram) add(v float64) {
	i := 0
	for i < len(bounds) && v > bounds[i] {
		i++
	}
	h.n[i]++
	h.sum += v
}

func newIstioMetrics() *IstioMetrics {
	return &IstioMetrics{requests: make(map[IstioKey]*istioSeries), tcp: make(map[IstioKey]*istioTCP)}
}

// Request counts a finished request.
func (m *IstioMetrics) Request(k IstioKey, r *Record) {
	k.Flags = r.Flags.mask()
	s := m.requests[k]
	if s == nil {
		s = m.newSeries(k, r)
	}
	s.count++
	s.duration.add(float64(r.End-r.Start) / 1e6)
	s.in.add(float64(r.DownWireIn))
	s.out.add(float64(r.DownWireOut))
	s.msgIn += r.MessagesIn
	s.msgOut += r.MessagesOut
}

// newSeries is apart because its k goes to the heap.
func (m *IstioMetrics) newSeries(k IstioKey, r *Record) *istioSeries {
	s := &istioSeries{scope: k.Scope, labels: k.Scope.Labels(&k, flagText(r)), grpc: k.Protocol == 1}
	m.requests[k] = s
	m.order = append(m.order, s)
	return s
}

// TCP counts a connection's progress: what was opened, closed, sent and
// received since the last call.
func (m *IstioMetrics) TCP(k IstioKey, r *Record, opened, closed, sent, received uint64) {
	k.Flags = r.Flags.mask()
	s := m.tcp[k]
	if s == nil {
		s = m.newTCP(k, r)
	}
	s.opened += opened
	s.closed += closed
	s.sent += sent
	s.recv += received
}

func (m *IstioMetrics) newTCP(k IstioKey, r *Record) *istioTCP {
	s := &istioTCP{scope: k.Scope, labels: k.Scope.Labels(&k, flagText(r))}
	m.tcp[k] = s
	m.orderTCP = append(m.orderTCP, s)
	return s
}

func flagText(r *Record) string {
	if r.Flags.Empty() {
		return "-"
	}
	return string(r.Flags.Append(nil, false))
}

func (s *istioSeries) collect(out []Metric) []Metric {
	out = s.scope.add(out, s.labels, Metric{Name: "requests_total", Value: s.count})
	out = s.scope.add(out, s.labels, s.duration.metric("request_duration_milliseconds"))
	out = s.scope.add(out, s.labels, s.in.metric("request_bytes"))
	out = s.scope.add(out, s.labels, s.out.metric("response_bytes"))
	if s.grpc {
		out = s.scope.add(out, s.labels, Metric{Name: "request_messages_total", Value: s.msgIn})
		out = s.scope.add(out, s.labels, Metric{Name: "response_messages_total", Value: s.msgOut})
	}
	return out
}

func (s *istioTCP) collect(out []Metric) []Metric {
	out = s.scope.add(out, s.labels, Metric{Name: "tcp_connections_opened_total", Value: s.opened})
	out = s.scope.add(out, s.labels, Metric{Name: "tcp_connections_closed_total", Value: s.closed})
	out = s.scope.add(out, s.labels, Metric{Name: "tcp_sent_bytes_total", Value: s.sent})
	return s.scope.add(out, s.labels, Metric{Name: "tcp_received_bytes_total", Value: s.recv})
}

// add gives m its full name and its labels, unless the scope drops it.
func (s *IstioScope) add(out []Metric, labels []Label, m Metric) []Metric {
	m.Labels = labels
	if s.Override != nil {
		var drop bool
		if m.Labels, drop = s.Override(m.Name, labels); drop {
			return out
		}
	}
	m.Name = "istio_" + m.Name
	m.Prom = m.Name
	return append(out, m)
}

func (h *histogram) metric(name string) Metric {
	m := Metric{Name: name, Kind: Histogram, Sum: h.sum, Buckets: make([]uint64, len(h.n))}
	for i, n := range h.n {
		m.Value += n
		m.Buckets[i] = m.Value
	}
	return m
}
