package conform

import (
	"fmt"
	"strings"
)

func (b *backend) serveH1(w *wire, record *seenConn) {
	for {
		head := readHead(w, after(patience))
		if head == nil {
			if len(w.buf) > 0 {
				b.note(func() { record.facts["partial"] = text(w.buf) })
			}
			return
		}
		line, fields := parseHead(head)
		method, rest, _ := strings.Cut(line, " ")
		path := rest
		if at := strings.LastIndex(rest, " "); at >= 0 {
			path = rest[:at]
		}
		answer := b.nextReply(path)
		request := object{"method": method, "path": path, "authority": nil, "headers": shownPairs(fields, "host")}
		if authority, ok := fieldValues(fields, "host"); ok {
			request["authority"] = authority
		}
		if b.spec.RawHead {
			request["raw_head"] = text(head)
		}
		b.note(func() { record.requests = append(record.requests, request) })
		for _, i := range answer.Interim {
			head := append(fmt.Appendf(nil, "HTTP/1.1 %d Interim\r\n", i.Status), headLines(i.Headers)...)
			w.send(append(head, "\r\n"...), after(patience))
		}
		if !answer.Early {
			b.readH1Body(w, fields, request)
		}
		if !b.answerH1(w, answer, request) {
			w.drain(after(patience))
			return
		}
		if answer.Early {
			b.readH1Body(w, fields, request)
		}
	}
}

func (b *backend) readH1Body(w *wire, fields []pair, request object) {
	body := readBody(w, fields, after(patience), false)
	parsed := parsedBody(body.data, b.spec.Parse, false)
	b.note(func() {
		request["body"] = parsed
		if len(body.trailers) > 0 {
			request["trailers"] = shownPairs(body.trailers)
		}
		if !body.complete {
			request["incomplete"] = true
		}
	})
}

// answerH1 plays one answer; true when the connection may carry the next request.
func (b *backend) answerH1(w *wire, r *reply, request object) bool {
	b.pause(r.DelayMS)
	if r.Hang {
		return false
	}
	if r.Raw != nil {
		w.send(r.Raw.bytes(), after(patience))
		return !r.stopped(w, "after")
	}
	if r.stopped(w, "before") {
		return false
	}
	status, fields, body, _ := r.filled(request)
	chunked := r.Chunked || r.Chunks != nil || len(r.Trailers) > 0
	bodiless := request["method"] == "HEAD" || status == 204 || status == 304 || status < 200
	framed := hasField(fields, "content-length") || hasField(fields, "transfer-encoding")
	switch {
	case chunked:
		fields = append(fields, pair{"transfer-encoding", "chunked"})
	case !framed && !r.NoLength && !(bodiless && len(body) == 0):
		fields = append(fields, pair{"content-length", fmt.Sprint(len(body))})
	}
	head := rawBytes(fmt.Sprintf("HTTP/%s %d %s\r\n", textOr(r.Version, "1.1"), status, textOr(r.Reason, "Reason")))
	w.send(append(append(head, headLines(fields)...), "\r\n"...), after(patience))
	if r.stopped(w, "headers") {
		return false
	}
	b.pause(r.BodyDelayMS)
	if !bodiless && !b.sendH1Body(w, r, body, chunked) {
		return false
	}
	if r.NoLength {
		w.halfClose()
		return false
	}
	return !r.stopped(w, "after")
}

func (b *backend) sendH1Body(w *wire, r *reply, body []byte, chunked bool) bool {
	stopHere := r.Reset == "body" || r.Close == "body"
	parts := [][]byte{body}
	if r.Chunks != nil {
		parts = nil
		for i := range r.Chunks {
			parts = append(parts, r.Chunks[i].bytes())
		}
	}
	if stopHere && len(parts) == 1 {
		parts[0] = body[:len(body)/2]
	}
	for i, part := range parts {
		if i > 0 {
			b.pause(r.ChunkDelayMS)
		}
		if chunked && len(part) > 0 {
			part = chunk(part)
		}
		if !w.send(part, after(patience)) {
			return false
		}
	}
	if stopHere {
		return !r.stopped(w, "body")
	}
	return !chunked || w.send(lastChunk(r.Trailers), after(patience))
}
