package h1

import "sluice/internal/httpmsg"

// statusLine parses the status line at the front of b into h; n is 0 when it
// isn't complete. The first scanned bytes are known not to end it.
func statusLine(b []byte, scanned int, h *httpmsg.Head, o *Options) (n int, f fault) {
	const version = "HTTP/"
	if k := min(len(b), len(version)); string(b[:k]) != version[:k] {
		return 0, codecError
	}
	end, next, f := lineEnd(b, scanned)
	if f != noFault {
		return 0, f
	}
	if next == 0 {
		if len(b) > o.maxBytes(false) {
			return 0, headersTooLarge
		}
		return 0, noFault
	}
	line := b[:end]
	if len(line) < 12 || line[5]-'0' > 9 || line[6] != '.' || line[7]-'0' > 9 || line[8] != ' ' {
		return 0, codecError
	}
	h.Major, h.Minor = line[5]-'0', line[7]-'0'
	code, reason := cutSpace(httpmsg.TrimSpace(line[9:]))
	if len(code) < 3 || len(code) > 4 { // Envoy takes four digits
		return 0, codecError
	}
	for _, c := range code {
		if c < '0' || c > '9' {
			return 0, codecError
		}
		h.Status = h.Status*10 + int(c-'0')
	}
	if h.Status < 100 {
		return 0, codecError
	}
	if o.ForwardReason {
		h.SetReason(reason)
	}
	return next, noFault
}
