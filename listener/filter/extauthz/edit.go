package extauthz

import (
	"strings"

	"sluice/internal/httpmsg"
	"sluice/listener/route"
)

// action is what an edit does. Envoy's append of a gRPC service joins with what
// is there, and does nothing where nothing is; an HTTP service's adds a line.
type action uint8

const (
	overwrite action = iota
	appendIfExists
	appendLine
	addIfAbsent
	overwriteIfExists
)

// edit is what the service does to a header, by its lower-case name.
type edit struct {
	name, value string
	how         action
}

func apply(h *httpmsg.Head, edits []edit) {
	for i := range edits {
		e := &edits[i]
		if framing(e.name) {
			continue
		}
		_, exists := h.Value(e.name)
		switch {
		case e.how == addIfAbsent && exists, e.how == overwriteIfExists && !exists:
		case e.how == appendIfExists:
			h.AppendNamed(e.name, []byte(e.value))
		case route.SetPseudo(h, e.name, []byte(e.value)):
		default:
			if e.how != appendLine {
				h.DelName(e.name)
			}
			h.AddName(e.name, []byte(e.value))
		}
	}
}

// remove takes headers away, but for those that say what a request is.
func remove(h *httpmsg.Head, names []string) {
	for _, n := range names {
		if n != "" && n[0] != ':' && n != "host" {
			h.DelName(n)
		}
	}
}

// framing reports whether a header says how a message comes: that is not for the
// service to say of another message.
func framing(name string) bool {
	switch name {
	case "content-length", "transfer-encoding", "connection", "keep-alive", "proxy-connection", "upgrade", "te", "trailer":
		return true
	}
	return false
}

// sendable reports whether an edit can be made without a message becoming another
// one.
func sendable(e *edit) bool {
	if !httpmsg.IsValue(e.value) {
		return false
	}
	switch e.name {
	case ":path", ":method", ":authority", ":scheme":
		return e.value != "" && !strings.ContainsAny(e.value, " \t")
	}
	return httpmsg.IsName(e.name)
}
