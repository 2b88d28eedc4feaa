// Package config is the waist of the proxy: plain, immutable values that say
// what the data plane does. Everything above it (xdsclient, translate, link)
// produces these values, everything below it (listener, upstream, telemetry)
// runs them; neither side sees the other. It imports only the standard library
// and holds no behaviour beyond what a value needs to describe itself.
//
// Values are built once by xdsclient/translate, which has checked all that can
// be wrong about their content, and are never changed afterwards: any number of
// goroutines may read them. Durations of zero mean "off" unless a field says
// otherwise; defaults that Envoy applies to absent fields are already filled in.
package config

import (
	"net/netip"
	"time"
)

// Meta identifies one received resource. Hash is taken over its bytes: two
// resources of one name with equal Hash are the same and keep their runtime.
type Meta struct {
	Name    string
	Version string
	Hash    uint64
}

// Snapshot is everything the data plane obeys at one moment. It is swapped
// whole; maps and slices in it are never changed after publication.
type Snapshot struct {
	// Base is set when only endpoints and route tables set this snapshot apart from
	// a complete one: Clusters then holds those whose endpoints changed. All else
	// is complete here too, and but for Routes as in Base. So a change of one
	// cluster or table costs no copy of ten thousand clusters.
	Base      *Snapshot
	Listeners []*Listener
	Clusters  map[string]*Cluster
	Routes    map[string]*RouteConfiguration
	Secrets   map[string]*Secret
	Names     *NameTable // nil until one was received
}

// Cluster gives a cluster by name, nil when there is none.
func (s *Snapshot) Cluster(name string) *Cluster {
	if c := s.Clusters[name]; c != nil || s.Base == nil {
		return c
	}
	return s.Base.Clusters[name]
}

// Whole is the complete snapshot: Base, or s itself.
func (s *Snapshot) Whole() *Snapshot {
	if s.Base != nil {
		return s.Base
	}
	return s
}

// Address is where a socket binds or connects: an IP and port, or a Unix
// socket path (Pipe), or an internal listener's name. Exactly one is set.
type Address struct {
	IP       netip.AddrPort
	Pipe     string
	Internal string
	// Hostname is the DNS name of a STRICT_DNS or LOGICAL_DNS endpoint that
	// upstream resolves; Port goes with it.
	Hostname string
	Port     uint16
}

// String gives the address the way Envoy prints it.
func (a Address) String() string {
	switch {
	case a.Pipe != "":
		return a.Pipe
	case a.Internal != "":
		return "envoy://" + a.Internal + "/"
	case a.IP.IsValid():
		return a.IP.String()
	}
	return a.Hostname + ":" + itoa(a.Port)
}

func itoa(p uint16) string {
	var b [5]byte
	i := len(b)
	for {
		i--
		b[i] = byte('0' + p%10)
		if p /= 10; p == 0 {
			return string(b[i:])
		}
	}
}

// Keepalive is the TCP keep-alive of a socket; a zero member leaves the
// kernel's value.
type Keepalive struct {
	Enabled  bool
	Probes   int
	Time     time.Duration
	Interval time.Duration
}

// NameTable answers DNS queries (NDS). Keys are lower-case host names without
// the trailing dot.
type NameTable struct {
	Meta
	Hosts map[string]NameTableEntry
}

// NameTableEntry is one host of a NameTable.
type NameTableEntry struct {
	IPs       []netip.Addr
	Registry  string
	Shortname string
	Namespace string
}

// Percent is a fraction of requests: Numerator in Million.
type Percent struct{ PerMillion uint32 }

// Value is a metadata value, a closed set: string, float64, bool, nil, List or Struct.
type Value any

// List is a list Value.
type List []Value

// Struct is a struct Value.
type Struct map[string]Value

// Metadata is filter metadata by name space ("istio", "envoy.lb", ...).
type Metadata map[string]Struct

// Set sets the value of a key in a name space. It allocates.
func (m *Metadata) Set(ns, key string, v Value) {
	if *m == nil {
		*m = Metadata{}
	}
	if (*m)[ns] == nil {
		(*m)[ns] = Struct{}
	}
	(*m)[ns][key] = v
}

// Lookup walks path below name space ns and says whether something is there.
func (m Metadata) Lookup(ns string, path ...string) (Value, bool) {
	var v Value = m[ns]
	if m[ns] == nil {
		return nil, false
	}
	for _, p := range path {
		s, ok := v.(Struct)
		if !ok {
			return nil, false
		}
		if v, ok = s[p]; !ok {
			return nil, false
		}
	}
	return v, true
}

// StringAt is Lookup for strings; anything else gives "".
func (m Metadata) StringAt(ns string, path ...string) string {
	v, _ := m.Lookup(ns, path...)
	s, _ := v.(string)
	return s
}

// Retries are those of a request of our own.
type Retries struct {
	Max               int
	Base, MaxInterval time.Duration
}
