package route

import (
	"sluice/internal/config"
	"sluice/internal/httpmsg"
)

// Mutations is one level's header edits, compiled. All values are evaluated
// before any header changes, then removals, overwrites and additions happen in
// that order, as in Envoy.
type Mutations struct {
	remove []string
	write  []write
}

type write struct {
	name    string
	id      httpmsg.ID
	literal string
	format  *config.Format // nil: literal
	action  config.HeaderAppendAction
	empty   bool
}

// Eval appends the value of a format to dst.
type Eval func(dst []byte, f *config.Format) []byte

// Scratch is the working memory of Apply, to be reused.
type Scratch struct {
	buf  []byte
	ends []int
}

// CompileMutations compiles a list of edits; nil for an empty one.
func CompileMutations(list []config.HeaderMutation) *Mutations { return compileMutations(list) }

// Sequence is edits that take place one after the other, each on what the one
// before left, as those of header mutation extensions do.
type Sequence []*Mutations

// CompileSequence compiles a list of edits.
func CompileSequence(list []config.HeaderMutation) (s Sequence) {
	for i := range list {
		s = append(s, compileMutations(list[i:i+1]))
	}
	return s
}

// Apply edits h.
func (s Sequence) Apply(h *httpmsg.Head, eval Eval, scratch *Scratch) {
	for _, m := range s {
		m.Apply(h, eval, scratch)
	}
}

func compileMutations(list []config.HeaderMutation) *Mutations {
	if len(list) == 0 {
		return nil
	}
	m := &Mutations{}
	for i := range list {
		c := &list[i]
		if c.Remove != "" {
			m.remove = append(m.remove, c.Remove)
			continue
		}
		w := write{name: c.Name, id: httpmsg.LookupString(c.Name), action: c.Action, empty: c.KeepEmpty, format: c.Value}
		if s, ok := c.Value.Literal(); ok {
			w.literal, w.format = s, nil
		}
		m.write = append(m.write, w)
	}
	return m
}

// Apply edits h. eval is asked for values that aren't constant.
func (m *Mutations) Apply(h *httpmsg.Head, eval Eval, s *Scratch) {
	if m == nil {
		return
	}
	s.buf, s.ends = s.buf[:0], s.ends[:0]
	for i := range m.write {
		if f := m.write[i].format; f != nil {
			s.buf = eval(s.buf, f)
		} else {
			s.buf = append(s.buf, m.write[i].literal...)
		}
		s.ends = append(s.ends, len(s.buf))
	}
	for _, name := range m.remove {
		if name != "host" && name[0] != ':' {
			h.DelName(name)
		}
	}
	m.pass(h, s, true)
	m.pass(h, s, false)
}

func (m *Mutations) pass(h *httpmsg.Head, s *Scratch, overwrite bool) {
	start := 0
	for i := range m.write {
		w, v := &m.write[i], s.buf[start:s.ends[i]]
		start = s.ends[i]
		if len(v) == 0 && !w.empty {
			continue
		}
		switch w.action {
		case config.OverwriteOrAdd, config.OverwriteIfExists:
			if overwrite && (w.action == config.OverwriteOrAdd || has(h, w.name)) {
				set(h, w, v)
			}
		case config.AddIfAbsent:
			if !overwrite && !has(h, w.name) {
				add(h, w, v)
			}
		default:
			if !overwrite {
				add(h, w, v)
			}
		}
	}
}

func has(h *httpmsg.Head, name string) bool {
	if v, ok := Pseudo(h, name); ok {
		return len(v) > 0
	}
	_, ok := h.Value(name)
	return ok
}

func set(h *httpmsg.Head, w *write, v []byte) {
	if SetPseudo(h, w.name, v) {
		return
	}
	if w.id != httpmsg.Other {
		h.Set(w.id, v)
		return
	}
	h.DelName(w.name)
	h.AddName(w.name, v)
}

// SetPseudo sets the pseudo header that name stands for; it is false for any other
// header.
func SetPseudo(h *httpmsg.Head, name string, v []byte) bool {
	switch name {
	case ":path":
		h.SetPath(v)
	case ":method":
		h.SetMethod(v)
	case ":authority", "host":
		h.SetAuthority(v)
	case ":scheme":
		h.SetScheme(v)
	default:
		return false
	}
	return true
}

// add appends; Envoy keeps one line of each header it knows, values joined by
// a comma, but for set-cookie.
func add(h *httpmsg.Head, w *write, v []byte) {
	switch {
	case SetPseudo(h, w.name, v):
	case w.id == httpmsg.Other && joins(w.name):
		if !h.AppendNamed(w.name, v) {
			h.AddName(w.name, v)
		}
	case w.id == httpmsg.Other:
		h.AddName(w.name, v)
	case w.id != httpmsg.SetCookie && w.id != httpmsg.Cookie && h.Has(w.id):
		h.AppendComma(w.id, v)
	default:
		h.AddID(w.id, v)
	}
}

// joins lists further headers of which Envoy keeps one line.
func joins(name string) bool {
	switch name {
	case "accept", "accept-encoding", "cache-control", "content-encoding", "etag", "pragma", "vary", "if-match", "if-none-match",
		"if-modified-since", "if-unmodified-since", "if-range", "access-control-allow-origin", "access-control-allow-headers",
		"access-control-allow-methods", "access-control-allow-credentials", "access-control-expose-headers", "access-control-max-age":
		return true
	}
	return false
}
