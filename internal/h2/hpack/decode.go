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
	Check       Check
	Sensitive   bool // must never be indexed on the way on
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

// Next takes a field off the front of block into f. ok is false at its end; with
// ErrMore nothing was taken.
func (d *Decoder) Next(block []byte, f *Field) (rest []byte, ok bool, err error) {
	for len(block) > 0 {
		c := block[0]
		switch {
		case c&0x80 != 0:
			i, rest := uint64(c&0x7f), block[1:]
			if i == 0x7f {
				if i, rest, err = integer(block, 7); err != nil {
					return block, false, err
				}
			}
			d.late = true
			if !d.indexed(i, f) {
				return block, false, errIndex
			}
			return rest, true, nil
		case c&0xe0 == 0x20:
			size, rest, err := integer(block, 5)
			if err != nil {
				return block, false, err
			}
			if d.late || size > uint64(d.allowed) {
				return block, false, errSize
			}
			d.table.resize(uint32(size))
			block = rest
		default:
			return d.literal(block, f)
		}
	}
	return nil, false, nil
}

func (d *Decoder) indexed(i uint64, f *Field) bool {
	if i-1 < staticLen {
		e := &static[i]
		f.Name, f.Value, f.ID, f.Check, f.Sensitive = e.name, e.value, e.id, NameOK|ValueOK, false
		return true
	}
	if i == 0 {
		return false
	}
	r := d.table.at(i - staticLen - 1)
	if r == nil {
		return false
	}
	f.Name, f.Value = d.table.bytes(r)
	f.ID, f.Check, f.Sensitive = r.id, r.check, false
	return true
}

// literal decodes the three kinds of literal fields.
func (d *Decoder) literal(block []byte, f *Field) (rest []byte, ok bool, err error) {
	c, n := block[0], uint(4)
	index := c&0x40 != 0
	if index {
		n = 6
	}
	f.Sensitive = c&0xf0 == 0x10
	i, rest, err := integer(block, n)
	if err != nil {
		return block, false, err
	}
	d.scratch = d.scratch[:0]
	if i == 0 {
		if f.Name, rest, err = d.text(rest); err != nil {
			return block, false, err
		}
		f.ID, f.Check = httpmsg.Lookup(f.Name), checkName(f.Name)
	} else if err = d.name(i, index, f); err != nil {
		return block, false, err
	}
	if f.Value, rest, err = d.text(rest); err != nil {
		return block, false, err
	}
	f.Check |= checkValue(f.Value)
	d.late = true
	if index && d.table.add(f.Name, f.Value, f.ID, 0) {
		d.table.at(0).check = f.Check
	}
	return rest, true, nil
}

// name takes the name of an entry; one that add may move is copied.
func (d *Decoder) name(i uint64, add bool, f *Field) error {
	if i <= staticLen {
		f.Name, f.ID, f.Check = static[i].name, static[i].id, NameOK
		return nil
	}
	r := d.table.at(i - staticLen - 1)
	if r == nil {
		return errIndex
	}
	name, _ := d.table.bytes(r)
	if add {
		d.scratch = append(d.scratch, name...)
		name = d.scratch[:len(name):len(name)]
	}
	f.Name, f.ID, f.Check = name, r.id, r.check&^ValueOK
	return nil
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
