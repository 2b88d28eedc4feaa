package httpmsg

// Head is a message head: pseudo headers and fields, as offsets into one
// buffer that the Head owns. A Head is reused: Reset keeps its memory. Field
// names are lower-case. Slices handed out stay valid until the next Reset.
//
// The order of fields is the order of arrival; edits mark fields deleted and
// append, so an edit never moves bytes.
type Head struct {
	buf    []byte
	fields []field
	first  [numIDs]uint16 // index+1 of the first live field of a known name

	cases []uint64 // per field, when NoteCase was used: bit i = byte i of the name came in upper case

	method, path, authority, scheme, protocol, reason span
	Status                                            int
	Major, Minor                                      uint8 // of the message as received
	hasAuthority                                      bool
	style                                             NameStyle
	hostCase                                          uint64
	live, size, wire                                  int
}

type span struct{ off, n uint32 }

// field is one field. Its bytes lie in buf as on an HTTP/1 wire, "name: value"
// and CRLF, so that fields which follow each other are written in one copy.
type field struct {
	name, value span
	id          ID
	dead        bool
	sensitive   bool
}

// Reset empties the head and keeps its memory.
func (h *Head) Reset() {
	h.buf = h.buf[:0]
	h.fields = h.fields[:0]
	h.cases = h.cases[:0]
	h.first = [numIDs]uint16{}
	h.method, h.path, h.authority, h.scheme, h.protocol, h.reason = span{}, span{}, span{}, span{}, span{}, span{}
	h.Status, h.Major, h.Minor, h.live = 0, 0, 0, 0
	h.hasAuthority, h.hostCase, h.size, h.wire, h.style = false, 0, 0, 0, AsWritten
}

func (h *Head) at(s span) []byte { return h.buf[s.off : s.off+s.n : s.off+s.n] }

func (h *Head) put(b []byte) span {
	s := span{uint32(len(h.buf)), uint32(len(b))}
	h.buf = append(h.buf, b...)
	h.size += len(b)
	return s
}

// line appends the bytes of a field and its slot.
func line[N, V string | []byte](h *Head, id ID, name N, value V) {
	at := uint32(len(h.buf))
	b := append(h.buf, name...)
	b = append(b, ':', ' ')
	b = append(b, value...)
	h.buf = append(b, '\r', '\n')
	h.slot(id, span{at, uint32(len(name))}, span{at + uint32(len(name)) + 2, uint32(len(value))})
}

// Method, Path, Authority, Scheme and Protocol are the pseudo headers; empty
// when absent. Path includes the query.
func (h *Head) Method() []byte { return h.at(h.method) }

// Path is :path.
func (h *Head) Path() []byte { return h.at(h.path) }

// Authority is :authority, or the Host header of HTTP/1.
func (h *Head) Authority() []byte { return h.at(h.authority) }

// Scheme is :scheme.
func (h *Head) Scheme() []byte { return h.at(h.scheme) }

// Protocol is :protocol of an extended CONNECT.
func (h *Head) Protocol() []byte { return h.at(h.protocol) }

// SetMethod sets :method.
func (h *Head) SetMethod(b []byte) { h.method = h.put(b) }

// SetPath sets :path.
func (h *Head) SetPath(b []byte) { h.path = h.put(b) }

// SetAuthority sets :authority.
func (h *Head) SetAuthority(b []byte) { h.authority, h.hasAuthority = h.put(b), true }

// HasAuthority tells an empty authority from none.
func (h *Head) HasAuthority() bool { return h.hasAuthority }

// Reason is the reason phrase of an HTTP/1 response, kept only when the engine
// was asked to forward it.
func (h *Head) Reason() []byte { return h.at(h.reason) }

// SetReason sets the reason phrase; empty means the standard one.
func (h *Head) SetReason(b []byte) { h.reason = h.put(b) }

// SetScheme sets :scheme.
func (h *Head) SetScheme(b []byte) { h.scheme = h.put(b) }

// SetProtocol sets :protocol.
func (h *Head) SetProtocol(b []byte) { h.protocol = h.put(b) }

// Len is the number of field slots, deleted ones included; with Field it
// iterates.
func (h *Head) Len() int { return len(h.fields) }

// Live is the number of fields.
func (h *Head) Live() int { return h.live }

// Field gives field i; ok is false when it was deleted.
func (h *Head) Field(i int) (id ID, name, value []byte, ok bool) {
	f := &h.fields[i]
	return f.id, h.at(f.name), h.at(f.value), !f.dead
}

// Size is the number of bytes of names and values, pseudo headers included, of
// all that was ever put in.
func (h *Head) Size() int { return h.size }

// WireSize is what the fields took on the wire as Envoy counts it, in bytes, told
// by the engine that received or sent the head; 0 when none did.
func (h *Head) WireSize() int { return h.wire }

// SetWireSize tells it.
func (h *Head) SetWireSize(n int) { h.wire = n }

// Add appends a field; name must be lower-case.
func (h *Head) Add(name, value []byte) { line(h, Lookup(name), name, value) }

// AddID appends a field of a known name.
func (h *Head) AddID(id ID, value []byte) { line(h, id, names[id], value) }

// AddString appends a field of a known name.
func (h *Head) AddString(id ID, value string) { line(h, id, names[id], value) }

// AddName appends a field whose lower-case name is a string.
func (h *Head) AddName(name string, value []byte) {
	line(h, LookupString(name), name, value)
}

// AppendComma appends to the first value of a known name, after a comma, or
// adds the field.
func (h *Head) AppendComma(id ID, value []byte) {
	i := h.first[id]
	if i == 0 {
		h.AddID(id, value)
		return
	}
	h.join(int(i)-1, value)
}

// AppendNamed is AppendComma for any lower-case name; it reports whether the
// field was there.
func (h *Head) AppendNamed(name string, value []byte) bool {
	for i := range h.fields {
		if f := &h.fields[i]; !f.dead && string(h.at(f.name)) == name {
			h.join(i, value)
			return true
		}
	}
	return false
}

// join appends to the value of field i; an empty one is replaced. The line is
// written anew, since its bytes must stay together.
func (h *Head) join(i int, value []byte) {
	f := &h.fields[i]
	name, old := h.at(f.name), h.at(f.value)
	at, n := uint32(len(h.buf)), uint32(len(name))
	b := append(append(h.buf, name...), ':', ' ')
	if len(old) > 0 {
		b = append(append(b, old...), ',')
	}
	b = append(b, value...)
	f.name, f.value = span{at, n}, span{at + n + 2, uint32(len(b)) - at - n - 2}
	h.buf = append(b, '\r', '\n')
	h.size += len(value) + 1
}

// AddSensitive appends a field that HPACK must never index.
func (h *Head) AddSensitive(name, value []byte) {
	h.Add(name, value)
	h.fields[len(h.fields)-1].sensitive = true
}

// Sensitive reports whether field i came as never-indexed.
func (h *Head) Sensitive(i int) bool { return h.fields[i].sensitive }

func (h *Head) slot(id ID, name, value span) {
	n := len(h.fields)
	if n < cap(h.fields) {
		h.fields = h.fields[:n+1]
	} else {
		h.fields = append(h.fields, field{})
	}
	f := &h.fields[n]
	f.name, f.value, f.id, f.dead, f.sensitive = name, value, id, false, false
	h.live++
	h.size += int(name.n + value.n)
	if id != Other && h.first[id] == 0 {
		h.first[id] = uint16(n + 1)
	}
}

// AppendWire appends the fields as HTTP/1 lines, but those named skip or skip2;
// Other skips none.
func (h *Head) AppendWire(dst []byte, skip, skip2 ID) []byte {
	from, to := uint32(0), uint32(0) // a run of buf to copy
	for i := range h.fields {
		f := &h.fields[i]
		if f.dead || f.id != Other && (f.id == skip || f.id == skip2) {
			continue
		}
		if f.value.off != f.name.off+f.name.n+2 { // a value that was replaced
			dst = append(dst, h.buf[from:to]...)
			from, to = 0, 0
			dst = append(append(dst, h.at(f.name)...), ':', ' ')
			dst = append(append(dst, h.at(f.value)...), '\r', '\n')
			continue
		}
		if f.name.off != to {
			dst = append(dst, h.buf[from:to]...)
			from = f.name.off
		}
		to = f.value.off + f.value.n + 2
	}
	return append(dst, h.buf[from:to]...)
}

// Has reports whether a field of a known name is there.
func (h *Head) Has(id ID) bool { return h.first[id] != 0 }

// Get gives the first value of a known name, nil when absent.
func (h *Head) Get(id ID) []byte {
	if i := h.first[id]; i != 0 {
		return h.at(h.fields[i-1].value)
	}
	return nil
}

// Value gives the first value of any lower-case name.
func (h *Head) Value(name string) (value []byte, ok bool) {
	if id := LookupString(name); id != Other {
		return h.Get(id), h.Has(id)
	}
	for i := range h.fields {
		f := &h.fields[i]
		if !f.dead && f.id == Other && string(h.at(f.name)) == name {
			return h.at(f.value), true
		}
	}
	return nil, false
}

// Set replaces all values of a known name by one.
func (h *Head) Set(id ID, value []byte) {
	h.Del(id)
	h.AddID(id, value)
}

// SetString replaces all values of a known name by one.
func (h *Head) SetString(id ID, value string) {
	h.Del(id)
	h.AddString(id, value)
}

// Del removes all fields of a known name.
func (h *Head) Del(id ID) {
	if i := int(h.first[id]); i != 0 {
		h.first[id] = 0
		for j := i - 1; j < len(h.fields); j++ {
			if h.fields[j].id == id && !h.fields[j].dead {
				h.fields[j].dead = true
				h.live--
			}
		}
	}
}

// DelName removes all fields of any lower-case name and says how many.
func (h *Head) DelName(name string) int {
	before := h.live
	if id := LookupString(name); id != Other {
		h.Del(id)
		return before - h.live
	}
	for i := range h.fields {
		f := &h.fields[i]
		if !f.dead && f.id == Other && string(h.at(f.name)) == name {
			f.dead = true
			h.live--
		}
	}
	return before - h.live
}

// DelAt removes field i.
func (h *Head) DelAt(i int) {
	f := &h.fields[i]
	if f.dead {
		return
	}
	f.dead = true
	h.live--
	if f.id == Other || int(h.first[f.id]) != i+1 {
		return
	}
	h.first[f.id] = 0
	for j := i + 1; j < len(h.fields); j++ {
		if h.fields[j].id == f.id && !h.fields[j].dead {
			h.first[f.id] = uint16(j + 1)
			return
		}
	}
}

// SetValueAt replaces the value of field i.
func (h *Head) SetValueAt(i int, value []byte) {
	h.buf = append(h.buf, 0) // so that it never looks like a line
	h.fields[i].value = h.put(value)
}

// CopyFrom makes h an independent copy of o.
func (h *Head) CopyFrom(o *Head) {
	buf, fields, cases := append(h.buf[:0], o.buf...), append(h.fields[:0], o.fields...), append(h.cases[:0], o.cases...)
	*h = *o
	h.buf, h.fields, h.cases = buf, fields, cases
}
