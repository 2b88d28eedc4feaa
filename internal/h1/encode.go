package h1

import (
	"strconv"

	"sluice/internal/httpmsg"
)

// writing is how the content of a sent message is delimited.
type writing uint8

const (
	beforeHead writing = iota
	asLength           // Content-Length, or none needed
	asChunks
	asClose   // by closing (HTTP/1.0, or a response without length)
	asRaw     // a tunnel
	noContent // HEAD, 204, 304: what comes is dropped
	sent
)

// appendProper writes a name with the first letter of each word in upper case.
func appendProper[T string | []byte](b []byte, name T) []byte {
	at := len(b)
	b = append(b, name...)
	first := true
	for i, c := range b[at:] {
		if first && 'a' <= c && c <= 'z' {
			b[at+i] &^= 0x20
		}
		first = class[c]&isToken == 0 || c == '-' || c == '.' || c == '_' || c == '&'
	}
	return b
}

// appendFields writes the live fields but Transfer-Encoding, which is the
// engine's, and skip. A value can't hold CR, LF or NUL: both engines refuse them.
func appendFields(b []byte, h *httpmsg.Head, o *Options, skip httpmsg.ID) []byte {
	proper := o.proper(h)
	if !proper && h.Style() == httpmsg.AsWritten {
		return h.AppendWire(b, httpmsg.TransferEncoding, skip)
	}
	for i := range h.Len() {
		id, name, value, ok := h.Field(i)
		if !ok || id == httpmsg.TransferEncoding || id == skip && id != httpmsg.Other {
			continue
		}
		b = appendName(b, h, i, name, proper)
		b = append(append(append(b, ": "...), value...), '\r', '\n')
	}
	return b
}

// proper reports whether names that weren't received are written with capitals.
func (o *Options) proper(h *httpmsg.Head) bool {
	switch h.Style() {
	case httpmsg.AsReceived:
		return false
	case httpmsg.AsReceivedOrProper:
		return true
	}
	return o.ProperCase
}

// appendName writes the name of a field as the head's style says.
func appendName(b []byte, h *httpmsg.Head, i int, name []byte, proper bool) []byte {
	if h.Style() != httpmsg.AsWritten {
		if n, received := h.AppendName(b, i); received {
			return n
		}
	}
	if proper {
		return appendProper(b, name)
	}
	return append(b, name...)
}

// appendLine writes a field of the engine's own.
func appendLine(b []byte, proper bool, name, value string) []byte {
	if proper {
		b = appendProper(b, name)
	} else {
		b = append(b, name...)
	}
	b = append(b, ':', ' ')
	b = append(b, value...)
	return append(b, '\r', '\n')
}

// appendStatus writes a status line.
func appendStatus(b []byte, h *httpmsg.Head, http10 bool) []byte {
	if http10 {
		b = append(b, "HTTP/1.0 "...)
	} else {
		b = append(b, "HTTP/1.1 "...)
	}
	if h.Status == 200 && len(h.Reason()) == 0 {
		return append(b, "200 OK\r\n"...)
	}
	b = strconv.AppendInt(b, int64(h.Status), 10)
	b = append(b, ' ')
	if r := h.Reason(); len(r) > 0 {
		b = append(b, r...)
	} else {
		b = append(b, reason(h.Status)...)
	}
	return append(b, '\r', '\n')
}

// appendChunk writes one chunk around p.
func appendChunk(b, p []byte) []byte {
	b = strconv.AppendUint(b, uint64(len(p)), 16)
	b = append(b, '\r', '\n')
	b = append(b, p...)
	return append(b, '\r', '\n')
}

// crumbs are small pieces of content that came though the output is full, kept
// to make one chunk. A source that doesn't pause at once, an HTTP/2 stream with
// a window of 16 MiB and DATA of one byte, would else have each byte cost six.
type crumbs []byte

const (
	crumb     = 512      // a piece that is kept
	fullCrumb = 16 << 10 // pieces that make a chunk
)

// take keeps p if it is one to keep.
func (k *crumbs) take(p []byte, pending int) bool {
	if len(p) == 0 || len(p) > crumb || pending <= httpmsg.HighWater || len(*k)+len(p) > fullCrumb {
		return false
	}
	*k = append(*k, p...)
	return true
}

// appendTo writes what is kept as a chunk.
func (k *crumbs) appendTo(b []byte) []byte {
	if len(*k) > 0 {
		b = appendChunk(b, *k)
		*k = nil
	}
	return b
}

// appendLast writes the last chunk and the trailers, t may be nil.
func appendLast(b []byte, t *httpmsg.Head, o *Options) []byte {
	b = append(b, '0', '\r', '\n')
	if t != nil && o.EnableTrailers {
		dropForbidden(t)
		b = appendFields(b, t, o, httpmsg.Other)
	}
	return append(b, '\r', '\n')
}

// reason gives Envoy's reason phrase of a status.
func reason(status int) string {
	if i := status - 100; i >= 0 && i < len(reasons) && reasons[i] != "" {
		return reasons[i]
	}
	return "Unknown"
}

var reasons = [...]string{
	0: "Continue", 1: "Switching Protocols", 2: "Processing", 3: "Early Hints",
	100: "OK", 101: "Created", 102: "Accepted", 103: "Non-Authoritative Information", 104: "No Content",
	105: "Reset Content", 106: "Partial Content", 107: "Multi-Status", 108: "Already Reported", 126: "IM Used",
	200: "Multiple Choices", 201: "Moved Permanently", 202: "Found", 203: "See Other", 204: "Not Modified",
	205: "Use Proxy", 207: "Temporary Redirect", 208: "Permanent Redirect",
	300: "Bad Request", 301: "Unauthorized", 302: "Payment Required", 303: "Forbidden", 304: "Not Found",
	305: "Method Not Allowed", 306: "Not Acceptable", 307: "Proxy Authentication Required", 308: "Request Timeout",
	309: "Conflict", 310: "Gone", 311: "Length Required", 312: "Precondition Failed", 313: "Payload Too Large",
	314: "URI Too Long", 315: "Unsupported Media Type", 316: "Range Not Satisfiable", 317: "Expectation Failed",
	321: "Misdirected Request", 322: "Unprocessable Entity", 323: "Locked", 324: "Failed Dependency", 325: "Too Early",
	326: "Upgrade Required", 328: "Precondition Required", 329: "Too Many Requests",
	331: "Request Header Fields Too Large",
	400: "Internal Server Error", 401: "Not Implemented", 402: "Bad Gateway", 403: "Service Unavailable",
	404: "Gateway Timeout", 405: "HTTP Version Not Supported", 406: "Variant Also Negotiates",
	407: "Insufficient Storage", 408: "Loop Detected", 410: "Not Extended", 411: "Network Authentication Required",
}
