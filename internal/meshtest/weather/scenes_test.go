package weather

import "fmt"

// scene is a weather and what is asked of the proxy in it.
type scene struct {
	kind, title string
	peers       int  // connections, or streams, that memory is divided by
	limit       int  // bytes above rest for each
	after       bool // memory is given back within the test
	check       func(f facts) string
}

// scenes are all of them. The limits are what was measured and half as much
// again; raise one only with the reason in the same change.
func scenes() []scene {
	const kb = 1 << 10
	crowd := crowdSize()
	return []scene{
		{"slow-readers", "slow readers, HTTP/1.1", crowd, 72 * kb, true, none("lost")},
		{"slow-relays", "slow readers, TCP", crowd, 52 * kb, false, none("lost")},
		{"slow-heads", "slow writers of a head", crowd, 10 * kb, false, only408},
		{"slow-bodies", "slow writers of a body", crowd, 14 * kb, false, only408},
		{"big-body", "1 GB to a client at 64 KB/s, HTTP/1.1 and TCP", bodyClients, 1024 * kb, false, heldBack},
		{"tiny-windows", "streams that open their window by a byte", windowConns * windowStreams, 56 * kb, false, none("streams reset")},
		{"handshakes", "mTLS handshakes at once", burst, 48 * kb, true, allShaken},
		{"never-reads", "requests of clients that never read: HTTP/1.1, HTTP/2, TCP", greedyPeers, 88 * kb, false, none("ended by the proxy")},
		{"silent-timeout", "requests that no upstream answers, timeout 1 s", waiters, 16 * kb, true, inTime},
		{"silent-forever", "requests that no upstream answers, no timeout", waiters, 14 * kb, false, none("other ends", "504")},
		{"deaf-upstream", "bodies that no upstream reads", deafPeers, 112 * kb, false, none("other ends")},
	}
}

// none says that these facts must be 0.
func none(names ...string) func(facts) string {
	return func(f facts) string {
		for _, name := range names {
			if f[name] != 0 {
				return fmt.Sprintf("%s: %d", name, f[name])
			}
		}
		return ""
	}
}

// only408 is how a slow request ends: request_headers_timeout or request_timeout.
func only408(f facts) string {
	if f["408"] == 0 {
		return "nobody was told 408"
	}
	return none("other ends", "refused")(f)
}

func heldBack(f facts) string {
	if f["under way"] > bodyClients<<19 || f["read"] < bodyClients*64<<10 {
		return fmt.Sprintf("%d bytes were under way, %d read", f["under way"], f["read"])
	}
	return ""
}

func allShaken(f facts) string {
	if f["handshakes"] != burst {
		return fmt.Sprintf("%d handshakes of %d", f["handshakes"], burst)
	}
	return ""
}

func inTime(f facts) string {
	if ms := f["longest wait in ms"]; ms < 1000 || ms > 1250 {
		return fmt.Sprintf("504 came after %d ms", ms)
	}
	return none("other ends")(f)
}
