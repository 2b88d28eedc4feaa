package conform

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The steps that speak to the proxy's listeners.

// connect opens a connection by its proto, or gives a result that says why not.
func (p *player) connect(s *dialSpec, deadline time.Time) (conn, object) {
	port, ok := p.ports[s.To]
	if s.To == "admin" {
		port, ok = p.ports["ADMIN"]
	}
	if !ok {
		return conn{}, object{"end": "unknown target " + s.To}
	}
	d := dialing{address: s.Address, port: port, source: s.From, first: s.ProxyHeader.bytes(), tls: s.TLS, folder: p.folder}
	if s.TLS != nil && s.Proto == "h2" && s.TLS.ALPN == nil {
		withALPN := *s.TLS
		withALPN.ALPN = []string{"h2"}
		d.tls = &withALPN
	}
	if s.TLS != nil && s.TLS.Resume != "" {
		if c, err := p.named(s.TLS.Resume); err == nil {
			d.resume = c.wire
		}
	}
	w, why := dial(d, deadline)
	if w == nil {
		return conn{}, failed(why)
	}
	if s.Proto != "h2" {
		return conn{wire: w}, nil
	}
	return conn{w, newH2(w, h2Options{client: true, auto: s.Auto == nil || *s.Auto, settings: s.Settings})}, nil
}

func failed(why string) object {
	if reason, ok := strings.CutPrefix(why, "tls:"); ok {
		return object{"end": "tls", "tls_error": reason}
	}
	return object{"end": why}
}

func (p *player) named(name string) (conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c, ok := p.conns[name]
	if !ok {
		return conn{}, fmt.Errorf("no open connection %s", name)
	}
	return c, nil
}

func (p *player) keep(name string, c conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[name] = c
}

func (p *player) open(s *openStep) object {
	c, why := p.connect(&s.dialSpec, p.until(s.WithinS))
	if why != nil {
		return why
	}
	p.keep(s.Conn, c)
	if c.wire.tls != nil {
		return object{"tls": c.wire.tls}
	}
	return object{}
}

func (p *player) http(s *httpStep) (object, error) {
	deadline := p.until(s.TimeoutS)
	c, err := p.named(s.Conn)
	fresh := s.Conn == "" || err != nil
	if fresh {
		var why object
		if c, why = p.connect(&s.dialSpec, deadline); why != nil {
			return why, nil
		}
		if s.Conn != "" {
			p.keep(s.Conn, c)
		}
	}
	out, err := p.exchange(c, s, deadline)
	if err != nil {
		return nil, err
	}
	if fresh && c.wire.tls != nil {
		out["tls"] = c.wire.tls
	}
	if end, ok := out["end"].(string); ok {
		if reason, isTLS := strings.CutPrefix(end, "tls:"); isTLS {
			out["end"], out["tls_error"] = "tls", reason
		}
	}
	if s.Conn == "" {
		c.closeBy("fin")
		if c.h2 != nil {
			c.h2.work.Wait()
		}
	}
	return out, nil
}

func (p *player) exchange(c conn, s *httpStep, deadline time.Time) (object, error) {
	if c.h2 != nil {
		return c.h2.request(s, p.folder, deadline)
	}
	parts, err := p.authoredParts(s)
	if err != nil {
		return nil, err
	}
	for i, part := range parts {
		if i > 0 {
			p.sleep(millis(s.ChunkDelayMS))
		}
		c.wire.send(part, deadline)
	}
	r := reading{method: s.Method, rawHead: s.RawHead, peek: 50 * time.Millisecond}
	if s.PeekS != nil {
		r.peek = seconds(*s.PeekS)
	}
	return readResponse(c.wire, r, deadline), nil
}

// authoredParts is the writes of an HTTP/1 request: by hand, or made.
func (p *player) authoredParts(s *httpStep) ([][]byte, error) {
	parts := s.Parts
	if parts == nil && s.Raw != nil {
		parts = []authored{*s.Raw}
	}
	if parts == nil {
		return requestParts(s, p.folder)
	}
	out := make([][]byte, len(parts))
	for i := range parts {
		var err error
		if out[i], err = parts[i].in(p.folder); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (p *player) send(s *sendStep) (object, error) {
	c, err := p.named(s.Conn)
	if err != nil {
		return nil, err
	}
	data, err := s.Raw.in(p.folder)
	if err != nil {
		return nil, err
	}
	sent := false
	if c.h2 != nil {
		sent = c.h2.write(data)
	} else {
		sent = c.wire.send(data, p.until(s.WithinS))
	}
	if sent {
		return nil, nil
	}
	return object{"sent": false}, nil
}

func (p *player) recv(s *recvStep) (object, error) {
	c, err := p.named(s.Conn)
	if err != nil {
		return nil, err
	}
	deadline := p.until(s.WithinS)
	if c.h2 != nil {
		return c.h2.recvFrames(s, deadline), nil
	}
	n, notNumber := strconv.Atoi(s.Until)
	switch {
	case s.Until == "response":
		return readResponse(c.wire, reading{method: s.Method, rawHead: s.RawHead, peek: -1}, deadline), nil
	case s.Until == "idle":
		idle := millis(s.IdleMS)
		if idle == 0 {
			idle = 200 * time.Millisecond
		}
		for left(deadline) > 0 && c.wire.fill(earlier(deadline, after(idle))) {
		}
	case notNumber == nil:
		c.wire.need(n, deadline)
		return object{"received": text(c.wire.take(n)), "end": c.wire.endOr("open")}, nil
	default:
		c.wire.drain(deadline)
	}
	return object{"received": text(c.wire.takeAll()), "end": c.wire.endOr("open")}, nil
}

// sendFrames writes frames in one write, up to a pause: so nothing of our own
// reader comes between them.
func (p *player) sendFrames(s *h2Step) (object, error) {
	c, err := p.named(s.Conn)
	if err != nil {
		return nil, err
	}
	if c.h2 == nil {
		return nil, fmt.Errorf("connection %s is not HTTP/2", s.Conn)
	}
	var out []byte
	for i := range s.Frames {
		f := &s.Frames[i]
		if f.PauseMS > 0 {
			if len(out) > 0 && !c.h2.write(out) {
				return object{"sent": false}, nil
			}
			out = nil
			p.sleep(millis(f.PauseMS))
		}
		if f.Stream != nil {
			c.h2.adopt(*f.Stream)
		}
		data, err := c.h2.built(f, 0, p.folder)
		if err != nil {
			return nil, err
		}
		for range max(1, f.Times) {
			out = append(out, data...)
		}
	}
	if len(out) > 0 && !c.h2.write(out) {
		return object{"sent": false}, nil
	}
	return nil, nil
}

func (p *player) closeConn(s *closeStep) error {
	c, err := p.named(s.Conn)
	if err != nil {
		return err
	}
	if s.How == "half" {
		c.wire.halfClose()
		return nil
	}
	p.mu.Lock()
	delete(p.conns, s.Conn)
	p.mu.Unlock()
	c.closeBy(s.How)
	return nil
}

func (p *player) tcp(s *tcpStep) (object, error) {
	deadline := p.until(s.WithinS)
	c, why := p.connect(&dialSpec{To: s.To, TLS: s.TLS, ProxyHeader: s.ProxyHeader, Address: s.Address, From: s.From}, deadline)
	if why != nil {
		return why, nil
	}
	w := c.wire
	data, err := s.Send.in(p.folder)
	if err != nil {
		return nil, err
	}
	w.send(data, deadline)
	if s.Half == "true" {
		w.halfClose()
	}
	if s.ExpectBytes != nil {
		w.need(*s.ExpectBytes, deadline)
		if s.Half == "after" {
			w.halfClose()
			w.drain(deadline)
		}
		w.fill(after(50 * time.Millisecond))
	} else {
		w.drain(deadline)
	}
	received, end := text(w.takeAll()), w.endOr("open")
	if end == "fin" && w.tls != nil {
		w.awaitFIN()
	}
	w.closeBy("fin")
	if strings.HasPrefix(end, "tls:") {
		out := failed(end)
		out["received"] = received
		return out, nil
	}
	out := object{"received": received, "end": end}
	if w.tls != nil {
		out["tls"] = w.tls
	}
	return out, nil
}
