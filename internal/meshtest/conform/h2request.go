package conform

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// request plays an http step on an HTTP/2 connection: one request, the whole
// response, as the step's result.
func (c *h2Conn) request(s *httpStep, folder string, deadline time.Time) (object, error) {
	if s.WaitSettings == nil || *s.WaitSettings {
		c.wait(earlier(deadline, after(time.Second)), func() bool { return c.ready })
	}
	body, hasBody, err := s.whole(folder)
	if err != nil {
		return nil, err
	}
	head := c.requestHead(s)
	c.opening.Lock()
	stream := c.openStream()
	c.sendHeaders(stream, head, !hasBody && len(s.Trailers) == 0 && !s.OpenEnded)
	c.opening.Unlock()
	if hasBody {
		c.sendData(stream, body, len(s.Trailers) == 0 && !s.OpenEnded, deadline)
	}
	if len(s.Trailers) > 0 {
		c.sendHeaders(stream, s.Trailers, true)
	}
	if s.CancelMS != nil {
		c.done(stream, earlier(deadline, after(millis(*s.CancelMS))))
		c.resetStream(stream, "CANCEL")
		deadline = after(50 * time.Millisecond)
	}
	finished := c.done(stream, deadline)
	return c.response(stream, finished), nil
}

func (c *h2Conn) requestHead(s *httpStep) []pair {
	authority, fields := "", []pair(nil)
	if s.Authority != nil {
		authority = *s.Authority
	}
	for _, f := range s.Headers {
		if !strings.EqualFold(f.name, "host") {
			fields = append(fields, f)
		} else if authority == "" {
			authority = f.value
		}
	}
	scheme := "http"
	if c.wire.tls != nil {
		scheme = "https"
	}
	method := textOr(s.Method, "GET")
	pseudo := []pair{{":method", method}, {":scheme", textOr(s.Scheme, scheme)}, {":authority", textOr(authority, defaultHost)}, {":path", pathOf(s)}}
	if s.Protocol != nil {
		pseudo = append(pseudo, pair{":protocol", *s.Protocol})
	} else if method == "CONNECT" {
		pseudo = []pair{pseudo[0], pseudo[2]}
	}
	return slices.Concat(pseudo, fields)
}

func pseudoHeader(fields []pair, name string) string {
	for _, f := range fields {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

// response is what came on a stream.
func (c *h2Conn) response(s *h2Stream, finished bool) object {
	out := object{}
	c.state.Lock()
	if s.hasHead {
		status, _ := strconv.Atoi(pseudoHeader(s.head, ":status"))
		out["status"], out["headers"], out["body"] = status, shownPairs(s.head, ":status"), text(s.data)
	}
	var interims []any
	for _, i := range s.interims {
		status, _ := strconv.Atoi(pseudoHeader(i, ":status"))
		interims = append(interims, object{"status": status, "headers": shownPairs(i, ":status")})
	}
	if interims != nil {
		out["interim"] = interims
	}
	if s.hasTrail {
		out["trailers"] = shownPairs(s.trailers)
	}
	// NO_ERROR after a whole answer only says that the request was not read to its end: a race.
	if s.reset != nil && !(s.ended && s.reset == "NO_ERROR") {
		out["rst_stream"] = s.reset
	}
	if s.hasHead && !s.ended {
		out["incomplete"] = true
	}
	rest := 200 * time.Millisecond
	if s.ended {
		rest = 20 * time.Millisecond
	}
	c.state.Unlock()
	c.wait(after(rest), func() bool { return c.goaway != nil })
	c.state.Lock()
	defer c.state.Unlock()
	if c.goaway != nil {
		out["goaway"] = c.goaway
	}
	if c.bad != "" {
		out["bad"] = c.bad
	}
	out["end"] = c.wire.endOr("open")
	if !finished {
		out["end"] = c.wire.endOr("timeout")
	}
	return out
}

// recvFrames is a recv step: the frames since the last one.
func (c *h2Conn) recvFrames(s *recvStep, deadline time.Time) object {
	c.awaitFrames(s, deadline)
	c.state.Lock()
	defer c.state.Unlock()
	frames := slices.DeleteFunc(c.log, func(f *frameLog) bool {
		if len(s.Types) > 0 {
			return !slices.Contains(s.Types, f.kind)
		}
		return !s.All && (f.kind == "SETTINGS" || f.kind == "WINDOW_UPDATE")
	})
	c.log = nil
	// Only the order within a stream is given.
	slices.SortStableFunc(frames, func(a, b *frameLog) int { return int(a.stream) - int(b.stream) })
	shown := make([]any, len(frames))
	for i, f := range frames {
		shown[i] = f.shown()
	}
	out := object{"frames": shown, "end": c.wire.endOr("open")}
	if c.bad != "" {
		out["bad"] = c.bad
	}
	return out
}

func (c *h2Conn) awaitFrames(s *recvStep, deadline time.Time) {
	if s.Until == "idle" {
		idle := millis(s.IdleMS)
		if idle == 0 {
			idle = 200 * time.Millisecond
		}
		for seen := -1; left(deadline) > 0; {
			c.state.Lock()
			n := len(c.log)
			c.state.Unlock()
			if n == seen {
				return
			}
			seen = n
			c.wait(earlier(deadline, after(idle)), func() bool { return len(c.log) != seen })
		}
		return
	}
	c.wait(deadline, func() bool {
		switch s.Until {
		case "", "close":
			return c.wire.end() != ""
		case "goaway":
			return c.goaway != nil
		case "end":
			stream := c.streams[s.Stream]
			return stream != nil && stream.over()
		}
		return slices.ContainsFunc(c.log, func(f *frameLog) bool { return f.kind == s.Until })
	})
	c.rest(30 * time.Millisecond)
}
