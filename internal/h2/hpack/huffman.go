package hpack

// The Huffman code is canonical: codes of one length are consecutive numbers, in
// the order of their symbols, and longer codes start where shorter ones end. So
// a code of n bits, seen as the top bits of a 32-bit word, belongs to length n
// when the word is below limit[n].

const (
	fastBits = 9
	maxBits  = 30
)

type fastCode struct {
	sym, bits uint8 // bits 0: longer than fastBits
}

type huffmanTables struct {
	fast   [1 << fastBits]fastCode
	limit  [maxBits + 2]uint64 // of left-aligned 32-bit words
	first  [maxBits + 2]uint32 // first code of the length
	offset [maxBits + 2]uint16 // of the length's symbols in order
	order  [256]uint8          // symbols by length, then value
}

var huffman = buildHuffman()

func buildHuffman() (t huffmanTables) {
	code, n := uint32(0), 0
	for bits := 1; bits <= maxBits; bits++ {
		code <<= 1
		t.first[bits], t.offset[bits] = code, uint16(n)
		for sym, l := range codeLen {
			if int(l) != bits {
				continue
			}
			t.order[n] = uint8(sym)
			if bits <= fastBits {
				low := code << (fastBits - bits)
				for i := range uint32(1) << (fastBits - bits) {
					t.fast[low+i] = fastCode{uint8(sym), uint8(bits)}
				}
			}
			n++
			code++
		}
		t.limit[bits] = uint64(code) << (32 - bits)
	}
	return t
}

// appendHuffman appends what src encodes. Padding must be fewer than eight one
// bits, and EOS must not occur (RFC 7541 section 5.2).
func appendHuffman(dst, src []byte) ([]byte, error) {
	var acc uint64 // the next bits, from the top
	have := 0
	for {
		for have <= 56 && len(src) > 0 {
			acc |= uint64(src[0]) << (56 - have)
			src = src[1:]
			have += 8
		}
		f := huffman.fast[acc>>(64-fastBits)]
		bits, sym := int(f.bits), f.sym
		if bits == 0 {
			if bits, sym = slowCode(uint32(acc >> 32)); bits == 0 {
				break
			}
		}
		if bits > have {
			break
		}
		dst = append(dst, sym)
		acc <<= bits
		have -= bits
	}
	if have >= 8 || acc != ^uint64(0)<<(64-have) && have > 0 {
		return dst, ErrHuffman
	}
	return dst, nil
}

// slowCode finds a code longer than fastBits at the top of w; bits is 0 for EOS.
func slowCode(w uint32) (bits int, sym uint8) {
	for bits = fastBits + 1; bits <= maxBits; bits++ {
		if uint64(w) < huffman.limit[bits] {
			i := w>>(32-bits) - huffman.first[bits]
			return bits, huffman.order[int(huffman.offset[bits])+int(i)]
		}
	}
	return 0, 0
}
