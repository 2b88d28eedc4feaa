package hpack

import (
	"errors"

	"sluice/internal/httpmsg"
)

// The ways a header block is broken. All are connection errors, but ErrMore in
// front of a CONTINUATION.
var (
	ErrMore    = errors.New("hpack: block ends inside a field")
	ErrHuffman = errors.New("hpack: bad Huffman code")
	errIndex   = errors.New("hpack: index beyond the tables")
	errInteger = errors.New("hpack: integer too large")
	errSize    = errors.New("hpack: table size update too large or late")
)

// Field is a decoded field; its slices are valid until the next call of Next,
// and only while the block is.
type Field struct {
	Name, Value []byte
	ID          httpmsg.ID // Other for pseudo headers too
	Sensitive   bool       // must never be indexed on the way on
}

// Decoder is the receiving end of one direction of a connection.
type Decoder struct {
	table   table
	allowed uint32 // largest size that the sender may choose
	scratch []byte // Huffman-decoded strings of the last field
	late    bool   // a field of the block has come
}

// NewDecoder makes a decoder whose announced table size is size bytes.
func NewDecoder(size uint32) Decoder {
	return Decoder{allowed: size, table: table{max: size}}
}

// Start begins a header block.
func (d *Decoder) Start() { d.late = false }

// Next takes a field off the front of block. ok is false at its end; with
// ErrMore nothing was taken.
func (d *Decoder) Next(block []byte) (f Field, rest []byte, ok bool, err error) {
	for len(block) > 0 {
		c := block[0]
		switch {
		case c&0x80 != 0:
			i, rest, err := integer(block, 7)
			if err != nil {
				return f, block, false, err
			}
			d.late = true
			return d.indexed(i, rest, block)
		case c&0xe0 == 0x20:
			size, rest, err := integer(block, 5)
			if err != nil {
				return f, block, false, err
			}
			if d.late || size > uint64(d.allowed) {
				return f, block, false, errSize
			}
			d.table.resize(uint32(size))
			block = rest
		default:
			return d.literal(block)
		}
	}
	return f, nil, false, nil
}

func (d *Decoder) indexed(i uint64, rest, block []byte) (Field, []byte, bool, error) {
	if i == 0 {
		return Field{}, block, false, errIndex
	}
	if i <= staticLen {
		e := &static[i]
		return Field{Name: e.name, Value: e.value, ID: e.id}, rest, true, nil
	}
	e := d.table.at(i - staticLen - 1)
	if e == nil {
		return Field{}, block, false, errIndex
	}
	name, value := d.table.bytes(e)
	return Field{Name: name, Value: value, ID: e.id}, rest, true, nil
}

// literal decodes the three kinds of literal fields.
func (d *Decoder) literal(block []byte) (f Field, rest []byte, ok bool, err error) {
	c, n := block[0], uint(4)
	index := c&0x40 != 0
	if index {
		n = 6
	}
	f.Sensitive = c&0xf0 == 0x10
	i, rest, err := integer(block, n)
	if err != nil {
		return f, block, false, err
	}
	d.scratch = d.scratch[:0]
	if i == 0 {
		if f.Name, rest, err = d.text(rest); err != nil {
			return f, block, false, err
		}
		f.ID = httpmsg.Lookup(f.Name)
	} else if f.Name, f.ID, err = d.name(i, index); err != nil {
		return f, block, false, err
	}
	if f.Value, rest, err = d.text(rest); err != nil {
		return f, block, false, err
	}
	d.late = true
	if index {
		d.table.add(f.Name, f.Value, f.ID, 0)
	}
	return f, rest, true, nil
}

// name gives the name of an entry; one that add may move is copied.
func (d *Decoder) name(i uint64, add bool) ([]byte, httpmsg.ID, error) {
	if i <= staticLen {
		return static[i].name, static[i].id, nil
	}
	e := d.table.at(i - staticLen - 1)
	if e == nil {
		return nil, 0, errIndex
	}
	name, _ := d.table.bytes(e)
	if add {
		d.scratch = append(d.scratch, name...)
		name = d.scratch[:len(name):len(name)]
	}
	return name, e.id, nil
}

// text takes a string literal. Huffman-coded ones go to the scratch buffer,
// which may move; a name that is there stays valid in the old one.
func (d *Decoder) text(b []byte) (s, rest []byte, err error) {
	if len(b) == 0 {
		return nil, b, ErrMore
	}
	n, rest, err := integer(b, 7)
	if err != nil {
		return nil, b, err
	}
	if n > uint64(len(rest)) {
		return nil, b, ErrMore
	}
	s, rest = rest[:n], rest[n:]
	if b[0]&0x80 != 0 {
		at := len(d.scratch)
		if d.scratch, err = appendHuffman(d.scratch, s); err != nil {
			return nil, b, err
		}
		s = d.scratch[at:len(d.scratch):len(d.scratch)]
	}
	return s, rest, nil
}

// Trim gives the scratch buffer back when one large value made it large.
func (d *Decoder) Trim() {
	if cap(d.scratch) > 4096 {
		d.scratch = nil
	}
}

// integer decodes a number with an n-bit prefix (RFC 7541 section 5.1), below
// 2^32.
func integer(b []byte, n uint) (v uint64, rest []byte, err error) {
	v = uint64(b[0]) & (1<<n - 1)
	if v < 1<<n-1 {
		return v, b[1:], nil
	}
	for i := 1; i < len(b); i++ {
		if i > 5 {
			return 0, b, errInteger
		}
		v += uint64(b[i]&0x7f) << (7 * (i - 1))
		if b[i]&0x80 == 0 {
			if v >= 1<<32 {
				return 0, b, errInteger
			}
			return v, b[i+1:], nil
		}
	}
	if len(b) > 5 {
		return 0, b, errInteger
	}
	return 0, b, ErrMore
}
