package h1

import (
	"bytes"

	"sluice/internal/httpmsg"
)

// requestLine parses the request line at the front of b into h; n is 0 when it
// isn't complete. The first scanned bytes are known not to end it.
func requestLine(b []byte, scanned int, h *httpmsg.Head, o *Options) (n int, f fault) {
	m := spanOf(b, isToken)
	if m > 256 || m > 32 && !o.AllowCustomMethods {
		return 0, codecError
	}
	if m == len(b) {
		return 0, noFault
	}
	if m == 0 || b[m] != ' ' && b[m] != '\t' || !o.AllowCustomMethods && !knownMethod(b[:m]) {
		if m > 0 && b[m] < 0x20 && b[m] != '\r' && b[m] != '\n' && b[m] != '\t' {
			return 0, invalidCharacters
		}
		return 0, codecError
	}
	end, next, f := lineEnd(b, max(m, scanned))
	if f != noFault {
		return 0, f
	}
	if next == 0 {
		if len(b) > o.maxBytes(true) {
			return 0, headersTooLarge
		}
		return 0, noFault
	}
	if end > o.maxBytes(true) {
		return 0, headersTooLarge
	}
	target, version := cutSpace(httpmsg.TrimSpace(b[m:end]))
	if f := setVersion(version, h); f != noFault {
		return 0, f
	}
	if len(target) == 0 || spanOf(target, isTarget) != len(target) {
		return 0, codecError
	}
	h.SetMethod(b[:m])
	if f := setTarget(target, h, o); f != noFault {
		return 0, f
	}
	if (h.Major != 1 || h.Minor != 1) && !o.AcceptHTTP10 {
		return 0, lowVersion
	}
	return next, noFault
}

// cutSpace cuts b at its first run of spaces and tabs.
func cutSpace(b []byte) (first, rest []byte) {
	for i, c := range b {
		if c == ' ' || c == '\t' {
			return b[:i], httpmsg.TrimSpace(b[i:])
		}
	}
	return b, nil
}

// setVersion takes HTTP/d.d, or none for HTTP/0.9. Envoy counts all but 1.1 as
// 1.0.
func setVersion(v []byte, h *httpmsg.Head) fault {
	if len(v) == 0 {
		h.Major, h.Minor = 0, 9
		return noFault
	}
	if len(v) != 8 || string(v[:5]) != "HTTP/" || v[6] != '.' || v[5]-'0' > 9 || v[7]-'0' > 9 {
		return codecError
	}
	h.Major, h.Minor = v[5]-'0', v[7]-'0'
	return noFault
}

// setTarget splits the request target (RFC 9112 section 3.2).
func setTarget(t []byte, h *httpmsg.Head, o *Options) fault {
	if string(h.Method()) == "CONNECT" {
		return setConnect(t, h)
	}
	switch {
	case t[0] == '/':
		h.SetPath(t)
		return noFault
	case t[0] == '*':
		if len(t) != 1 || string(h.Method()) != "OPTIONS" {
			return invalidURL
		}
		h.SetPath(t)
		return noFault
	}
	return setAbsolute(t, h, o)
}

// setConnect takes host:port.
func setConnect(t []byte, h *httpmsg.Head) fault {
	i := bytes.LastIndexByte(t, ':')
	if i <= 0 || i == len(t)-1 || spanOf(t, isHost) != len(t) {
		return invalidURL
	}
	for _, c := range t[i+1:] {
		if c < '0' || c > '9' {
			return invalidURL
		}
	}
	h.SetAuthority(t)
	return noFault
}

// setAbsolute takes scheme://authority/path. Without AllowAbsoluteURL the whole
// target stays the path, which no route takes.
func setAbsolute(t []byte, h *httpmsg.Head, o *Options) fault {
	i := bytes.Index(t, []byte("://"))
	if i <= 0 {
		return codecError
	}
	if !o.AllowAbsoluteURL {
		h.SetPath(t)
		return noFault
	}
	scheme, rest := t[:i], t[i+3:]
	switch {
	case httpmsg.EqualFold(scheme, "http"):
		h.SetScheme([]byte("http"))
	case httpmsg.EqualFold(scheme, "https"):
		h.SetScheme([]byte("https"))
	default:
		return invalidScheme
	}
	end := bytes.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	host := rest[:end]
	if at := bytes.LastIndexByte(host, '@'); at >= 0 {
		host = host[at+1:]
	}
	if len(host) == 0 {
		return invalidURL
	}
	if spanOf(host, isHost) != len(host) {
		return invalidAuthority
	}
	h.SetAuthority(host)
	if rest = rest[end:]; len(rest) == 0 {
		rest = []byte("/")
	}
	h.SetPath(rest)
	return noFault
}

// knownMethod has the methods that Envoy's parser takes without
// allow_custom_methods.
func knownMethod(m []byte) bool {
	switch string(m) {
	case "GET", "POST", "PUT", "HEAD", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE",
		"ACL", "BIND", "CHECKOUT", "COPY", "LINK", "LOCK", "MERGE", "MKACTIVITY", "MKCALENDAR", "MKCOL",
		"MOVE", "MSEARCH", "M-SEARCH", "NOTIFY", "PROPFIND", "PROPPATCH", "PURGE", "REBIND", "REPORT", "SEARCH",
		"SOURCE", "SUBSCRIBE", "UNBIND", "UNLINK", "UNLOCK", "UNSUBSCRIBE":
		return true
	}
	return false
}
