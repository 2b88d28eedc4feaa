package translate

import (
	"hash/maphash"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"sluice/internal/config"
)

// A change of one service comes as its whole route table, which has the virtual
// hosts of a thousand others. Those whose bytes are the same as in the table that
// is replaced are taken from it.

// table is a route table's bytes, taken apart.
type table struct {
	name   string
	rest   []byte                // all but the virtual hosts that are kept
	hashes []uint64              // by virtual host
	kept   []*config.VirtualHost // by virtual host; nil: new
}

// Routes is Resource for a route table; before gives the one of a name that it
// replaces, nil when there is none.
func (r *Registry) Routes(b []byte, before func(name string) *config.RouteConfiguration) (value any, name string, err error) {
	if v := r.amended(b, before); v != nil {
		return v, v.Name, nil
	}
	return r.Resource(RouteURL, b) // tells what is wrong, by its place in the whole
}

// amended gives nil for a table that isn't good.
func (r *Registry) amended(b []byte, before func(name string) *config.RouteConfiguration) (out *config.RouteConfiguration) {
	defer func() {
		if recover() != nil {
			out = nil
		}
	}()
	t, ok := r.takeApart(b)
	if !ok {
		return nil
	}
	old := before(t.name)
	if old != nil {
		t.keep(b, old)
	}
	s, m := r.scope(""), &route.RouteConfiguration{}
	if proto.Unmarshal(t.rest, m) != nil || !s.check(m) {
		return nil
	}
	v := s.routesBeside(m, false, t.kept)
	if s.out.err() != nil || old != nil && old.MaxDirectBody != v.MaxDirectBody {
		return nil
	}
	v.Hash = Hash(b)
	for i, h := range v.VirtualHosts {
		if t.kept[i] == nil && !readsFiles(h) {
			h.Hash = t.hashes[i]
		}
	}
	return v
}

// takeApart finds the virtual hosts; ok is false when b can't be parsed.
func (r *Registry) takeApart(b []byte) (t table, ok bool) {
	t.rest = b
	ok = eachField(b, func(n protowire.Number, whole, value []byte) {
		switch n {
		case 1:
			t.name = string(value)
		case 2:
			t.hashes = append(t.hashes, maphash.Bytes(r.seed, value)|1)
		}
	})
	t.kept = make([]*config.VirtualHost, len(t.hashes))
	return t, ok
}

// keep takes the hosts that are the same in old, and leaves them out of rest.
func (t *table) keep(b []byte, old *config.RouteConfiguration) {
	known := make(map[uint64]*config.VirtualHost, len(old.VirtualHosts))
	for _, h := range old.VirtualHosts {
		known[h.Hash] = h
	}
	delete(known, 0) // not to be taken
	i := 0
	t.rest = nil
	eachField(b, func(n protowire.Number, whole, _ []byte) {
		if n == 2 {
			i++
			if t.kept[i-1] = known[t.hashes[i-1]]; t.kept[i-1] != nil {
				return
			}
		}
		t.rest = append(t.rest, whole...)
	})
}

// eachField calls f for each field of a message, with its value where that has a
// length. It says whether b is well-formed.
func eachField(b []byte, f func(n protowire.Number, whole, value []byte)) bool {
	for len(b) > 0 {
		n, kind, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return false
		}
		size := protowire.ConsumeFieldValue(n, kind, b[tag:])
		if size < 0 || (n == 1 || n == 2) && kind != protowire.BytesType {
			return false
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(b[tag:])
		}
		f(n, b[:tag+size], value)
		b = b[tag+size:]
	}
	return true
}

// readsFiles says that an answer's body may have come from a file, which may
// have changed.
func readsFiles(h *config.VirtualHost) bool {
	for _, r := range h.Routes {
		if r.Direct != nil && len(r.Direct.Body) > 0 {
			return true
		}
	}
	return false
}
