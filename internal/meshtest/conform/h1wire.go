package conform

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HTTP/1 by hand: heads and bodies byte by byte, for the client and upstreams.

// readHead takes the bytes up to and with the empty line; nil when they did not
// come (then the wire's end and buf tell what did).
func readHead(w *wire, deadline time.Time) []byte {
	for {
		if at := bytes.Index(w.buf, []byte("\r\n\r\n")); at >= 0 {
			return w.take(at + 4)
		}
		if !w.fill(deadline) {
			return nil
		}
	}
}

func parseHead(head []byte) (string, []pair) {
	lines := strings.Split(strings.TrimRight(latin1(head), "\r\n"), "\r\n")
	var fields []pair
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		fields = append(fields, pair{name, strings.Trim(value, " \t")})
	}
	return lines[0], fields
}

// h1Body is a body as it came off the wire.
type h1Body struct {
	data     []byte
	trailers []pair
	complete bool
}

// readBody reads by the framing that the head announces.
func readBody(w *wire, fields []pair, deadline time.Time, untilClose bool) h1Body {
	if coding, _ := fieldValues(fields, "transfer-encoding"); strings.Contains(strings.ToLower(coding), "chunked") {
		return readChunks(w, deadline)
	}
	if length, ok := fieldValues(fields, "content-length"); ok {
		if n, err := strconv.ParseUint(length, 10, 40); err == nil {
			whole := w.need(int(n), deadline)
			return h1Body{data: w.take(int(n)), complete: whole}
		}
	}
	if untilClose {
		w.drain(deadline)
		return h1Body{data: w.takeAll(), complete: w.end() == "fin"}
	}
	return h1Body{complete: true}
}

func readChunks(w *wire, deadline time.Time) h1Body {
	var b h1Body
	for {
		line, ok := w.line(deadline)
		if !ok {
			return b
		}
		digits, _, _ := strings.Cut(line, ";")
		size, err := strconv.ParseUint(strings.TrimSpace(digits), 16, 40)
		if err != nil {
			b.trailers = []pair{{"bad-chunk", line}}
			return b
		}
		if size == 0 {
			return readTrailers(w, b, deadline)
		}
		whole := w.need(int(size)+2, deadline)
		got := w.take(int(size) + 2)
		b.data = append(b.data, got[:min(int(size), len(got))]...)
		if !whole {
			return b
		}
	}
}

func readTrailers(w *wire, b h1Body, deadline time.Time) h1Body {
	for {
		line, ok := w.line(deadline)
		if !ok {
			return b
		}
		if line == "" {
			b.complete = true
			return b
		}
		name, value, _ := strings.Cut(line, ":")
		b.trailers = append(b.trailers, pair{name, strings.TrimSpace(value)})
	}
}

func chunk(data []byte) []byte {
	return append(append(fmt.Appendf(nil, "%x\r\n", len(data)), data...), "\r\n"...)
}

func lastChunk(trailers []pair) []byte {
	return append(append([]byte("0\r\n"), headLines(trailers)...), "\r\n"...)
}

func headLines(fields []pair) []byte {
	var out []byte
	for _, f := range fields {
		out = append(append(out, rawBytes(f.name)...), ": "...)
		out = append(append(out, rawBytes(f.value)...), "\r\n"...)
	}
	return out
}

func hasField(fields []pair, name string) bool {
	return slices.ContainsFunc(fields, func(f pair) bool { return strings.EqualFold(f.name, name) })
}

func textOr(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// pathOf is the request's path; an empty one is one, too.
func pathOf(s *httpStep) string {
	if s.Path == nil {
		return "/"
	}
	return *s.Path
}

// requestParts is the bytes of an http step: host first, then the authored
// headers in their order; each part is one write.
func requestParts(s *httpStep, folder string) ([][]byte, error) {
	fields, authority := slices.Clone([]pair(s.Headers)), defaultHost
	if s.Authority != nil {
		authority = *s.Authority
	}
	if !hasField(fields, "host") && (s.Host == nil || *s.Host) {
		fields = slices.Insert(fields, 0, pair{"host", authority})
	}
	body, hasBody, err := s.whole(folder)
	if err != nil {
		return nil, err
	}
	chunked := s.Chunked || len(s.Trailers) > 0 || s.Chunks != nil
	framed := hasField(s.Headers, "content-length")
	switch {
	case chunked && !hasField(s.Headers, "transfer-encoding"):
		fields = append(fields, pair{"transfer-encoding", "chunked"})
	case hasBody && !chunked && !framed:
		fields = append(fields, pair{"content-length", strconv.Itoa(len(body))})
	}
	head := rawBytes(textOr(s.Method, "GET") + " " + pathOf(s) + " " + textOr(s.Version, "HTTP/1.1") + "\r\n")
	parts := [][]byte{append(append(head, headLines(fields)...), "\r\n"...)}
	if !chunked {
		if len(body) > 0 {
			parts = append(parts, body)
		}
		return parts, nil
	}
	for i := range s.Chunks {
		data, err := s.Chunks[i].in(folder)
		if err != nil {
			return nil, err
		}
		parts = append(parts, chunk(data))
	}
	if len(s.Chunks) == 0 && len(body) > 0 {
		parts = append(parts, chunk(body))
	}
	return append(parts, lastChunk(s.Trailers)), nil
}

// reading is how a response is read. After it, peek is the time to wait for an
// end or for bytes too many; negative leaves both for later.
type reading struct {
	method  string
	rawHead bool
	peek    time.Duration
}

// readResponse reads one whole response as a step's result.
func readResponse(w *wire, r reading, deadline time.Time) object {
	var interims []any
	for {
		head := readHead(w, deadline)
		if head == nil {
			out := object{}
			if len(w.buf) > 0 {
				out["partial"] = text(w.takeAll())
			}
			return ended(w, out, interims, "timeout")
		}
		line, fields := parseHead(head)
		parts := strings.SplitN(line, " ", 3)
		status, isNumber := 0, false
		if len(parts) > 1 {
			n, err := strconv.ParseUint(parts[1], 10, 32)
			status, isNumber = int(n), err == nil
		}
		if isNumber && status >= 100 && status < 200 && status != 101 {
			interims = append(interims, object{"status": status, "headers": shownPairs(fields)})
			continue
		}
		out := object{"status": status, "headers": shownPairs(fields)}
		if !isNumber {
			out["status"] = line
		}
		if parts[0] != "HTTP/1.1" {
			out["version"] = parts[0]
		}
		if r.rawHead {
			out["raw_head"] = text(head)
		}
		return readRest(w, r, out, fields, interims, deadline)
	}
}

// readRest reads what follows a final head.
func readRest(w *wire, r reading, out object, fields []pair, interims []any, deadline time.Time) object {
	status := out["status"]
	if status == 101 || r.method == "CONNECT" && status == 200 {
		return out // a tunnel: what follows is read by later steps
	}
	incomplete := false
	if r.method != "HEAD" && status != 204 && status != 304 {
		b := readBody(w, fields, deadline, true)
		out["body"] = text(b.data)
		if len(b.trailers) > 0 {
			out["trailers"] = shownPairs(b.trailers)
		}
		if incomplete = !b.complete; incomplete {
			out["incomplete"] = true
		}
	}
	connection, _ := fieldValues(fields, "connection")
	closing := strings.Contains(strings.ToLower(connection), "close") || out["version"] == "HTTP/1.0"
	if w.end() == "" && closing {
		w.drain(after(time.Second))
	} else if w.end() == "" && r.peek >= 0 {
		w.drain(after(r.peek))
	}
	if len(w.buf) > 0 && r.peek >= 0 {
		out["extra"] = text(w.buf)
	}
	if incomplete && w.end() == "" {
		return ended(w, out, interims, "timeout")
	}
	return ended(w, out, interims, "open")
}

func ended(w *wire, out object, interims []any, otherwise string) object {
	if interims != nil {
		out["interim"] = interims
	}
	out["end"] = w.endOr(otherwise)
	return out
}
