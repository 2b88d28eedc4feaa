//go:build amd64 && !purego

package gcm

import (
	"crypto/aes"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// TestLayout is what the assembly believes, and what a connection pays twice.
func TestLayout(t *testing.T) {
	var s schedule
	if k, r, all := unsafe.Offsetof(s.keys), unsafe.Offsetof(s.rounds), unsafe.Sizeof(wide{}); k != 272 || r != 512 || all > 576 {
		t.Errorf("keys at %d, rounds at %d, %d bytes", k, r, all)
	}
	if n := testing.AllocsPerRun(100, func() { newWide(make([]byte, 16)) }); n > 1 {
		t.Errorf("%v allocations a key", n)
	}
}

// TestBlockCipher compares key expansion and rounds with crypto/aes.
func TestBlockCipher(t *testing.T) {
	if !supported() {
		t.Log("this processor has none of it")
		return
	}
	r := rand.NewChaCha8([32]byte{1})
	for i := range 1000 {
		key, in := random(r, 16+i%2*16), random(r, 16)
		want := make([]byte, 16)
		c, err := aes.NewCipher(key)
		if err != nil {
			t.Fatal(err)
		}
		c.Encrypt(want, in)
		var s schedule
		var got block
		s.expand(key)
		encryptBlock(&s, &got, &block{binary.LittleEndian.Uint64(in), binary.LittleEndian.Uint64(in[8:])})
		if got[0] != binary.LittleEndian.Uint64(want) || got[1] != binary.LittleEndian.Uint64(want[8:]) {
			t.Fatalf("key %x: %x becomes %x", key, in, got)
		}
	}
}

// product is algorithm 1 of SP 800-38D bit by bit, on blocks turned around.
func product(x, y block) (z block) {
	for i := range 128 {
		if x[1-i/64]>>(63-i%64)&1 != 0 {
			z[0], z[1] = z[0]^y[0], z[1]^y[1]
		}
		y = timesX(y)
	}
	return z
}

func timesX(y block) block {
	out := -(y[0] & 1)
	return block{y[0]>>1 | y[1]<<63, y[1]>>1 ^ out&(0xe1<<56)}
}

// TestPowers checks multiplication and the table by the definition: H over x,
// times x, is H, and so on for every power.
func TestPowers(t *testing.T) {
	if !supported() {
		t.Log("this processor has none of it")
		return
	}
	r := rand.NewChaCha8([32]byte{2})
	for range 200 {
		x, y := block{r.Uint64(), r.Uint64()}, block{r.Uint64(), r.Uint64()}
		var got block
		multiply(&got, &x, &y)
		if want := timesX(product(x, y)); got != want {
			t.Fatalf("%x times %x is %x, not %x", x, y, got, want)
		}
		var s schedule
		s.expand(random(r, 16))
		s.setPowers()
		var zero, h block
		encryptBlock(&s, &h, &zero)
		h = block{bits.ReverseBytes64(h[1]), bits.ReverseBytes64(h[0])}
		want := h
		for i := 16; i >= 0; i-- {
			if got := timesX(s.powers[i]); got != want {
				t.Fatalf("power %d is %x, not %x", 17-i, got, want)
			}
			want = product(want, h)
		}
	}
}

// TestTimeDependsOnLengthsAlone reads the assembly: nothing goes from a vector
// register, where keys and data are, to a general register, a flag or a mask, and
// general registers are loaded with arguments and the number of rounds only. So
// no branch and no address can depend on anything else.
func TestTimeDependsOnLengthsAlone(t *testing.T) {
	vector := strings.Fields(`VMOVDQU VMOVDQU8 VMOVDQU8.Z VMOVDQU64 VMOVDQA64 VBROADCASTI32X4 VPSHUFB VPSHUFD VSHUFI64X2 VEXTRACTI64X4
		VEXTRACTI128 VPXOR VPXORQ VPTERNLOGQ VPADDD VPINSRD VPINSRQ VMOVQ VAESENC VAESENCLAST VPCLMULQDQ`)
	general := strings.Fields(`MOVQ LEAQ SHLQ SHRQ XORL BZHIQ KMOVQ ADDQ SUBQ CMPQ CMOVQCS CMOVQLT TESTQ JMP JB JBE JAE JEQ JZ PCALIGN RET VZEROALL`)
	load := regexp.MustCompile(`^(\w+\+\d+\(FP\)|OFFROUNDS\(R8\)|\$-?\w+|R9|CX|TEXT|AAD)$`)
	wideRegister := regexp.MustCompile(`\b[XYZ]\d`)
	vectorDst := regexp.MustCompile(`^([XYZ]\d+|LL|M|HH|T)$|\(`)
	text, err := os.ReadFile("wide_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for i, line := range strings.Split(string(text), "\n") {
		op, args, _ := strings.Cut(strings.TrimRight(strings.TrimSpace(line), "; \\"), " ")
		if !strings.HasPrefix(line, "\t") || strings.Contains(op, "(") || macro.MatchString(op) {
			continue
		}
		count++
		list := strings.Split(strings.TrimSpace(args), ", ")
		dst := list[len(list)-1]
		switch {
		case slices.Contains(vector, op) && vectorDst.MatchString(dst):
		case slices.Contains(general, op) && !wideRegister.MatchString(args) && (op != "MOVQ" || load.MatchString(list[0])):
		default:
			t.Errorf("line %d: %s", i+1, line)
		}
	}
	if count < 200 {
		t.Errorf("only %d instructions read", count)
	}
}

// macro matches uses of macros without arguments.
var macro = regexp.MustCompile(`^(SETUP|POWERS|COUNT|SUM|HASH|FOUR|NINE|NINEHASH|STORE|MASKS|LOAD|TAGSTART|TAGEND|FOUR17|NINE17|FOUR5|NINE5|TAILPOWERS|AADBLOCK|CLEAR)$`)
