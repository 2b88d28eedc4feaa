package balance

import (
	"math"
	"math/bits"
	"slices"
	"strconv"

	"sluice/internal/config"
)

// ring is a ketama ring: hosts at the hashes of key_0, key_1, ... by weight.
type ring struct{ entries []ringEntry }

type ringEntry struct {
	hash uint64
	host *Host
}

func newRing(hosts []*Host, share []float64, o config.RingHashOptions) *ring {
	low := 1.0
	for _, w := range share {
		low = math.Min(low, w)
	}
	minSize, maxSize := float64(o.Min), float64(o.Max)
	if minSize == 0 {
		minSize = 1024
	}
	if maxSize == 0 {
		maxSize = 8 << 20
	}
	scale := math.Min(math.Ceil(low*minSize)/low, maxSize)
	r := &ring{entries: make([]ringEntry, 0, int(math.Ceil(scale)))}
	current, target := 0.0, 0.0
	var key []byte
	for i, h := range hosts {
		key = append(append(key[:0], h.HashKey...), '_')
		n := len(key)
		target += scale * share[i]
		for k := uint64(0); current < target; k++ {
			key = strconv.AppendUint(key[:n], k, 10)
			hash := Hash64(key, 0)
			if o.Murmur {
				hash = murmur2(key, 0xc70f6907)
			}
			r.entries = append(r.entries, ringEntry{hash, h})
			current++
		}
	}
	slices.SortStableFunc(r.entries, func(a, b ringEntry) int {
		switch {
		case a.hash < b.hash:
			return -1
		case a.hash > b.hash:
			return 1
		}
		return 0
	})
	return r
}

func (r *ring) pick(q *Query, attempt int) *Host {
	hash := q.Hash
	if !q.HasHash {
		hash = q.Random
	}
	i, _ := slices.BinarySearchFunc(r.entries, hash, func(e ringEntry, h uint64) int {
		if e.hash < h {
			return -1
		}
		if e.hash > h {
			return 1
		}
		return 0
	})
	return r.entries[(i+attempt)%len(r.entries)].host
}

// maglev is the permutation table of the Maglev paper, weighted.
type maglev struct{ table []*Host }

type maglevHost struct {
	host                 *Host
	offset, skip, next   uint64
	weight, targetWeight float64
}

func newMaglev(hosts []*Host, share []float64, size uint64) *maglev {
	if size == 0 {
		size = 65537
	}
	m := &maglev{table: make([]*Host, size)}
	build := make([]maglevHost, len(hosts))
	top := 0.0
	for i, h := range hosts {
		key := []byte(h.HashKey)
		build[i] = maglevHost{host: h, offset: Hash64(key, 0) % size, skip: Hash64(key, 1)%(size-1) + 1, weight: share[i]}
		top = math.Max(top, share[i])
	}
	filled := uint64(0)
	for round := 1.0; filled < size; round++ {
		for i := range build {
			b := &build[i]
			if filled == size {
				break
			}
			if round*b.weight < b.targetWeight {
				continue
			}
			b.targetWeight += top
			c := (b.offset + b.skip*b.next) % size
			for m.table[c] != nil {
				b.next++
				c = (b.offset + b.skip*b.next) % size
			}
			m.table[c] = b.host
			b.next++
			filled++
		}
	}
	return m
}

func (m *maglev) pick(q *Query, attempt int) *Host {
	hash := q.Hash
	if !q.HasHash {
		hash = q.Random
	}
	if attempt > 0 {
		hash ^= ^uint64(0) - uint64(attempt) + 1
	}
	return m.table[hash%uint64(len(m.table))]
}

const (
	prime1 = 0x9E3779B185EBCA87
	prime2 = 0xC2B2AE3D27D4EB4F
	prime3 = 0x165667B19E3779F9
	prime4 = 0x85EBCA77C2B2AE63
	prime5 = 0x27D4EB2F165667C5
)

func le64(b []byte) uint64 {
	_ = b[7]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 | uint64(b[4])<<32 | uint64(b[5])<<40 |
		uint64(b[6])<<48 | uint64(b[7])<<56
}

func round64(acc, in uint64) uint64 { return bits.RotateLeft64(acc+in*prime2, 31) * prime1 }

// Hash64 is xxHash64, by which Envoy hashes keys and ring positions.
func Hash64(b []byte, seed uint64) uint64 {
	n := uint64(len(b))
	h := seed + prime5
	if len(b) >= 32 {
		p1, p2 := uint64(prime1), uint64(prime2)
		v := [4]uint64{seed + p1 + p2, seed + p2, seed, seed - p1}
		for ; len(b) >= 32; b = b[32:] {
			for i := range v {
				v[i] = round64(v[i], le64(b[i*8:]))
			}
		}
		h = bits.RotateLeft64(v[0], 1) + bits.RotateLeft64(v[1], 7) + bits.RotateLeft64(v[2], 12) + bits.RotateLeft64(v[3], 18)
		for i := range v {
			h = (h^round64(0, v[i]))*prime1 + prime4
		}
	}
	h += n
	for ; len(b) >= 8; b = b[8:] {
		h = bits.RotateLeft64(h^round64(0, le64(b)), 27)*prime1 + prime4
	}
	if len(b) >= 4 {
		w := uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24
		h = bits.RotateLeft64(h^w*prime1, 23)*prime2 + prime3
		b = b[4:]
	}
	for _, c := range b {
		h = bits.RotateLeft64(h^uint64(c)*prime5, 11) * prime1
	}
	h ^= h >> 33
	h *= prime2
	h ^= h >> 29
	h *= prime3
	return h ^ h>>32
}

// murmur2 is MurmurHash64A, compatible with std::hash of libstdc++.
func murmur2(b []byte, seed uint64) uint64 {
	const mul = 0xc6a4a7935bd1e995
	mix := func(x uint64) uint64 { return x ^ x>>47 }
	h := seed ^ uint64(len(b))*mul
	for ; len(b) >= 8; b = b[8:] {
		h = (h ^ mix(le64(b)*mul)*mul) * mul
	}
	if len(b) > 0 {
		var t uint64
		for i := len(b) - 1; i >= 0; i-- {
			t = t<<8 | uint64(b[i])
		}
		h = (h ^ t) * mul
	}
	return mix(mix(h) * mul)
}
