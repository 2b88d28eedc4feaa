package tlsconn

import (
	"crypto/tls"
	"errors"
	"io"
	"sync"
)

// sessions remembers what upstreams gave to resume by: one session for each
// address, name and protocol list. It belongs to one material, so that none
// outlives the secrets it was made under. It is safe for concurrent use.
type sessions struct {
	mu    sync.Mutex
	limit int
	of    map[string]session
	order []string // of keys, oldest first
}

type session struct {
	state *tls.ClientSessionState
	once  bool // RFC 8446 appendix C.4: a ticket of TLS 1.3 is for one use
}

func (s *sessions) get(key string) *tls.ClientSessionState {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.of[key]
	if x.once {
		s.forget(key)
	}
	return x.state
}

func (s *sessions) put(key string, state *tls.ClientSessionState, once bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forget(key)
	if state == nil {
		return
	}
	if len(s.order) >= s.limit {
		s.forget(s.order[0])
	}
	if s.of == nil {
		s.of = make(map[string]session)
	}
	s.of[key] = session{state, once}
	s.order = append(s.order, key)
}

// forget is called with mu held.
func (s *sessions) forget(key string) {
	if _, ok := s.of[key]; !ok {
		return
	}
	delete(s.of, key)
	for i, k := range s.order {
		if k == key {
			s.order = append(s.order[:i], s.order[i+1:]...)
			return
		}
	}
}

// sessionsOf is one handshake's view: crypto/tls would key by name alone.
type sessionsOf struct {
	all *sessions
	h   *handshake
	key string
}

// Get implements tls.ClientSessionCache.
func (s sessionsOf) Get(string) (*tls.ClientSessionState, bool) {
	x := s.all.get(s.key)
	return x, x != nil
}

// Put implements tls.ClientSessionCache.
func (s sessionsOf) Put(_ string, x *tls.ClientSessionState) {
	s.all.put(s.key, x, s.h.version == tls.VersionTLS13)
}

// learner has crypto/tls read the tickets that come after a client's handshake:
// only it can make sessions of them. It sees every record up to the first one
// that is something else, so that its count of records stays right.
type learner struct {
	conn *tls.Conn
	mem  *memory
	raw  []byte // the record at hand: opening it destroys its bytes
}

// maxLearn bounds the records that are copied.
const maxLearn = 4 << 10

// see keeps a record before it is opened; false: no ticket can be learnt any more.
func (l *learner) see(record []byte) bool {
	if len(record) > maxLearn {
		return false
	}
	l.raw = append(l.raw[:0], record...)
	return true
}

// learn takes the record that was seen, whose content is p; false as with see.
func (l *learner) learn(kind byte, p []byte) bool {
	if kind != recordHandshake || !onlyTickets(p) {
		return false
	}
	l.mem.in = l.raw
	var one [1]byte
	_, err := l.conn.Read(one[:])
	l.mem.in, l.mem.out = nil, nil
	var empty errEmpty
	return errors.As(err, &empty) && !errors.Is(err, io.EOF)
}

// onlyTickets reports whether p is whole NewSessionTicket messages.
func onlyTickets(p []byte) bool {
	for len(p) >= 4 && p[0] == msgTicket {
		n := 4 + int(p[1])<<16 + int(p[2])<<8 + int(p[3])
		if n > len(p) {
			return false
		}
		if p = p[n:]; len(p) == 0 {
			return true
		}
	}
	return false
}
