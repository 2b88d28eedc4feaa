package conform

import (
	"strconv"
	"time"
)

func (b *backend) serveH2(w *wire, record *seenConn) {
	conn := newH2(w, h2Options{auto: b.spec.Auto == nil || *b.spec.Auto, settings: b.spec.Settings,
		onStream: func(c *h2Conn, s *h2Stream) { b.serveStream(c, s, record) }})
	b.note(func() { record.h2 = conn })
	for i := range b.spec.OpenWith {
		if data, err := conn.built(&b.spec.OpenWith[i], 0, b.folder); err == nil {
			conn.write(data)
		}
	}
	conn.rest(patience)
	conn.state.Lock()
	bad := conn.bad
	conn.state.Unlock()
	if bad != "" {
		b.note(func() { record.facts["bad"] = bad })
		<-b.ctx.Done()
	}
	conn.closeAfterPeer()
}

// closeAfterPeer waits for the streams of a connection whose peer has ended.
func (c *h2Conn) closeAfterPeer() {
	c.state.Lock()
	c.stopped = true
	c.state.notify()
	c.state.Unlock()
	c.work.Wait()
}

func (b *backend) serveStream(c *h2Conn, s *h2Stream, record *seenConn) {
	c.state.Lock()
	head := s.head
	c.state.Unlock()
	request := object{"headers": shownPairs(head, ":method", ":path", ":authority", ":scheme")}
	for _, name := range []string{"method", "path", "authority", "scheme"} {
		request[name] = nil
		for _, f := range head {
			if f.name == ":"+name {
				request[name] = f.value
			}
		}
	}
	b.note(func() { record.requests = append(record.requests, request) })
	r := b.nextReply(pseudoHeader(head, ":path"))
	for _, i := range r.Interim {
		c.sendHeaders(s, append([]pair{{":status", strconv.Itoa(i.Status)}}, i.Headers...), false)
	}
	if !r.Early {
		b.readH2Body(c, s, request)
	}
	c.noteReset(s)
	if !c.isReset(s) {
		b.answerH2(c, s, r, request)
	}
	c.state.Lock()
	ended, reset := s.ended, s.wasReset
	c.state.Unlock()
	if !ended && !reset {
		b.readH2Body(c, s, request)
		c.state.Lock()
		ended = s.ended
		c.state.Unlock()
	}
	rest := patience
	if ended && !r.Hang {
		rest = 300 * time.Millisecond
	}
	c.wait(after(rest), func() bool { return s.reset != nil || b.ctx.Err() != nil })
	c.state.Lock()
	code := s.reset
	c.state.Unlock()
	if code != nil {
		b.note(func() { request["reset"] = code })
	}
}

func (c *h2Conn) isReset(s *h2Stream) bool {
	c.state.Lock()
	defer c.state.Unlock()
	return s.reset != nil
}

// noteReset is called before each part of an answer: a peer may reset as soon as
// it has the last one, and that must not look like a reset before it.
func (c *h2Conn) noteReset(s *h2Stream) {
	c.state.Lock()
	defer c.state.Unlock()
	s.wasReset = s.reset != nil
}

func (b *backend) readH2Body(c *h2Conn, s *h2Stream, request object) {
	c.done(s, after(patience))
	c.state.Lock()
	data, trailers, hasTrail, ended, reset := s.data, s.trailers, s.hasTrail, s.ended, s.reset
	c.state.Unlock()
	parsed := parsedBody(data, b.spec.Parse, true)
	b.note(func() {
		request["body"] = parsed
		if hasTrail {
			request["trailers"] = shownPairs(trailers)
		}
		if !ended {
			request["incomplete"] = true
		}
		if reset != nil {
			request["reset"] = reset
		}
	})
}

func (b *backend) answerH2(c *h2Conn, s *h2Stream, r *reply, request object) {
	b.pause(r.DelayMS)
	if r.Hang {
		return
	}
	if r.Raw != nil {
		c.write(r.Raw.bytes())
	}
	for i := range r.Frames {
		f := &r.Frames[i]
		b.pause(f.PauseMS)
		stream := s.id
		if f.Type == "SETTINGS" || f.Type == "PING" || f.Type == "GOAWAY" {
			stream = 0
		}
		c.noteReset(s)
		if data, err := c.built(f, stream, b.folder); err == nil {
			c.write(data)
		}
	}
	if b.cut(c, s, r, "before") || r.Raw != nil || r.Frames != nil {
		return
	}
	c.noteReset(s)
	status, fields, body, hasBody := r.filled(request)
	trailers := append([]pair(nil), r.Trailers...)
	if r.GRPCStatus != nil {
		trailers = append(trailers, pair{"grpc-status", *r.GRPCStatus})
		fields = append([]pair{{"content-type", "application/grpc"}}, fields...)
		if !hasBody { // trailers only
			fields, trailers = append(fields, trailers...), nil
		}
	}
	var parts [][]byte
	for i := range r.Chunks {
		parts = append(parts, r.Chunks[i].bytes())
	}
	if r.Chunks == nil && len(body) > 0 {
		parts = [][]byte{body}
	}
	c.sendHeaders(s, append([]pair{{":status", strconv.Itoa(status)}}, fields...), len(parts) == 0 && len(trailers) == 0)
	if b.cut(c, s, r, "headers") {
		return
	}
	b.pause(r.BodyDelayMS)
	b.sendH2Body(c, s, r, parts, trailers)
}

func (b *backend) sendH2Body(c *h2Conn, s *h2Stream, r *reply, parts [][]byte, trailers []pair) {
	cutBody := r.Reset == "body" || r.Close == "body" || r.RSTAt == "body"
	for i, part := range parts {
		if i > 0 {
			b.pause(r.ChunkDelayMS)
		}
		last := i == len(parts)-1 && len(trailers) == 0
		if cutBody && last {
			part = part[:len(part)/2]
		}
		c.noteReset(s)
		c.sendData(s, part, last && !cutBody, after(patience))
	}
	if b.cut(c, s, r, "body") {
		return
	}
	if len(trailers) > 0 {
		c.noteReset(s)
		c.sendHeaders(s, trailers, true)
	}
	b.cut(c, s, r, "after")
}

// cut says whether the script ends the stream or the connection at this point,
// and ends it.
func (b *backend) cut(c *h2Conn, s *h2Stream, r *reply, at point) bool {
	if r.RSTStream != "" && at == point(textOr(string(r.RSTAt), "before")) {
		c.resetStream(s, r.RSTStream)
		return true
	}
	if r.GoAway != "" && at == "after" {
		code := r.GoAway
		if code == "true" {
			code = "NO_ERROR"
		}
		c.goAway(s.id, code)
	}
	return r.stopped(c.wire, at)
}
