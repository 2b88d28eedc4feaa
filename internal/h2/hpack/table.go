package hpack

import "sluice/internal/httpmsg"

// row is an entry of a dynamic table, its bytes at pos in the table's stream of
// bytes: name, then value.
type row struct {
	pos         uint64
	hash        uint32
	nameN, valN uint32
	id          httpmsg.ID
	check       Check
}

func (r *row) size() uint32 { return r.nameN + r.valN + 32 }

// table is a dynamic table: a ring of rows, newest last, and one buffer for
// their bytes. Nothing is allocated until the first entry.
type table struct {
	rows []row // a power of two
	head uint64
	n    uint64 // rows head-n .. head-1 are live
	buf  []byte
	base uint64 // position of buf[0]
	size uint32
	max  uint32
}

// at gives entry i, 0 being the newest, nil beyond the end.
func (t *table) at(i uint64) *row {
	if i >= t.n {
		return nil
	}
	return t.row(t.head - 1 - i)
}

// row gives the row with a sequence number.
func (t *table) row(seq uint64) *row { return &t.rows[seq&uint64(len(t.rows)-1)] }

func (t *table) bytes(r *row) (name, value []byte) {
	at := r.pos - t.base
	b := t.buf[at : at+uint64(r.nameN+r.valN)]
	return b[:r.nameN:r.nameN], b[r.nameN:]
}

// resize changes the largest size.
func (t *table) resize(max uint32) {
	t.max = max
	t.evict(0)
}

// evict makes room for need bytes of size.
func (t *table) evict(need uint32) {
	for t.n > 0 && uint64(t.size)+uint64(need) > uint64(t.max) {
		t.size -= t.row(t.head - t.n).size()
		t.n--
	}
}

// add appends an entry; one that is larger than the table empties it.
func (t *table) add(name, value []byte, id httpmsg.ID, hash uint32) bool {
	r := row{nameN: uint32(len(name)), valN: uint32(len(value)), id: id, hash: hash}
	if uint64(len(name))+uint64(len(value))+32 > uint64(t.max) {
		t.evict(t.max + 1)
		t.n, t.size = 0, 0
		return false
	}
	t.evict(r.size())
	t.room(int(r.nameN + r.valN))
	r.pos = t.base + uint64(len(t.buf))
	t.buf = append(append(t.buf, name...), value...)
	if t.n == uint64(len(t.rows)) {
		t.grow()
	}
	*t.row(t.head) = r
	t.head++
	t.n++
	t.size += r.size()
	return true
}

// room moves the live bytes to the front of the buffer when it is full and at
// least half of it is dead, and else lets append make it larger: it never gets
// beyond about twice the table's size.
func (t *table) room(n int) {
	if len(t.buf)+n <= cap(t.buf) {
		return
	}
	live := t.base + uint64(len(t.buf))
	if t.n > 0 {
		live = t.row(t.head - t.n).pos
	}
	dead := int(live - t.base)
	if kept := len(t.buf) - dead; dead > 0 && (dead >= kept || kept+n <= cap(t.buf)/2) {
		copy(t.buf, t.buf[dead:])
		t.buf = t.buf[:kept]
		t.base = live
	}
}

func (t *table) grow() {
	old, n := t.rows, max(8, 2*len(t.rows))
	t.rows = make([]row, n)
	for i := t.head - t.n; i < t.head; i++ {
		*t.row(i) = old[i&uint64(len(old)-1)]
	}
}
