package xdsclient

import (
	"encoding/binary"
	"slices"
)

// archive keeps the bytes of received resources, which only config_dump asks
// for. The resources of a mesh differ by a few names and addresses, so each is
// kept as what it has in common with earlier ones and what is new: copies from a
// dictionary or from itself, and literal bytes.
//
// Kept bytes are the length of the whole, then in turns a run of literal bytes
// (length, bytes) and a copy (from, length) until the whole is there. A copy is
// from the dictionary below dictSize, and above from the whole's own beginning.
type archive struct {
	dict  []byte // of resources that had little in common with those before; only grows
	table [1 << tableBits]uint32
	// closed leaves the dictionary empty: secrets are not kept beyond their time.
	closed bool
}

const (
	dictSize  = 32 << 10
	dictEntry = 4 << 10 // longer ones resemble themselves
	tableBits = 13
	minCopy   = 6 // bytes that are worth a copy
)

// pack gives body's kept form, never nil.
func (a *archive) pack(body []byte) []byte {
	out := a.encode(body)
	if a.closed || len(out) <= len(body)/4 || len(body) > dictEntry || len(a.dict)+len(body) > dictSize {
		return out
	}
	at := len(a.dict)
	a.dict = append(a.dict, body...)
	for i := at; i+minCopy <= len(a.dict); i++ {
		a.table[hash(a.dict[i:])] = uint32(i) + 1
	}
	return a.encode(body)
}

func (a *archive) encode(body []byte) []byte {
	seen := a.table // places of six bytes by their hash, from 1 on
	out := binary.AppendUvarint(make([]byte, 0, 64+len(body)/4), uint64(len(body)))
	done := 0
	for i := 0; i+minCopy <= len(body); {
		place := &seen[hash(body[i:])]
		from := int(*place) - 1
		*place = uint32(dictSize+i) + 1
		n := a.common(body, i, from)
		if n < minCopy {
			i++
			continue
		}
		out = appendRun(out, body[done:i])
		out = binary.AppendUvarint(binary.AppendUvarint(out, uint64(from)), uint64(n))
		i += n
		done = i
	}
	if done < len(body) {
		out = appendRun(out, body[done:])
	}
	return slices.Clone(out)
}

func appendRun(out, run []byte) []byte {
	return append(binary.AppendUvarint(out, uint64(len(run))), run...)
}

func hash(b []byte) uint32 {
	v := uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint16(b[4:]))<<32
	return uint32(v * 0x9E3779B97F4A7C15 >> (64 - tableBits))
}

// common says for how long body goes on at i as it does at from.
func (a *archive) common(body []byte, i, from int) (n int) {
	if from < 0 {
		return 0
	}
	earlier := body
	if from >= dictSize {
		from -= dictSize
	} else {
		earlier = a.dict
	}
	for i+n < len(body) && from+n < len(earlier) && earlier[from+n] == body[i+n] {
		n++
	}
	return n
}

// unpack gives the bytes that pack was given.
func (a *archive) unpack(kept []byte) []byte {
	next := func() int {
		v, n := binary.Uvarint(kept)
		kept = kept[n:]
		return int(v)
	}
	size := next()
	out := make([]byte, 0, size)
	for len(out) < size {
		run := next()
		out = append(out, kept[:run]...)
		kept = kept[run:]
		if len(out) == size {
			break
		}
		from, n := next(), next()
		if from < dictSize {
			out = append(out, a.dict[from:from+n]...)
			continue
		}
		for from -= dictSize; n > 0; n-- { // may run into what it writes
			out = append(out, out[from])
			from++
		}
	}
	return out
}
