package gcm

import (
	"bytes"
	"crypto/fips140"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"
)

// each runs f with both implementations; on a processor without the wide one
// with the standard one alone, which then is all that New gives.
func each(t *testing.T, key []byte, f func(t *testing.T, a AEAD)) {
	t.Helper()
	std, err := newStandard(key)
	if err != nil {
		t.Fatal(err)
	}
	t.Run(fmt.Sprintf("standard/%d", 8*len(key)), func(t *testing.T) { f(t, std) })
	if w := newWide(key); w != nil {
		t.Run(fmt.Sprintf("wide/%d", 8*len(key)), func(t *testing.T) { f(t, w) })
	}
}

// both makes one of each for a random key.
func both(t testing.TB, r *rand.ChaCha8, size int) (std, w AEAD) {
	t.Helper()
	key := random(r, size)
	std, err := newStandard(key)
	if err != nil {
		t.Fatal(err)
	}
	if w = newWide(key); w == nil {
		w = std
	}
	return std, w
}

func random(r *rand.ChaCha8, n int) []byte {
	b := make([]byte, n)
	r.Read(b)
	return b
}

// aligned gives n bytes at an address that is off modulo 64.
func aligned(n, off int) []byte {
	b := make([]byte, n+128)
	at := (off + 64 - int(uintptr(unsafe.Pointer(&b[0]))%64)) % 64
	return b[at : at+n : at+n]
}

func fromHex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestKnownVectors are the cases of the GCM specification (McGrew and Viega,
// appendix B) that have nonces of 12 bytes, with keys of every size.
func TestKnownVectors(t *testing.T) {
	const (
		zero  = "00000000000000000000000000000000"
		key   = "feffe9928665731c6d6a8f9467308308"
		nonce = "cafebabefacedbaddecaf888"
		plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
		rest  = "1aafd255"
		aad   = "feedfacedeadbeeffeedfacedeadbeefabaddad2"
		c128  = "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
		c192  = "3980ca0b3c00e841eb06fac4872a2757859e1ceaa6efd984628593b40ca1e19c7d773d00c144c525ac619d18c84a3f4718e2448b2fe324d9ccda2710"
		c256  = "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
	)
	for _, c := range []struct{ number, key, nonce, plain, aad, sealed string }{
		{"1", zero, zero[:24], "", "", "58e2fccefa7e3061367f1d57a4e7455a"},
		{"2", zero, zero[:24], zero, "", "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf"},
		{"3", key, nonce, plain + rest, "", c128 + "473f59854d5c2af327cd64a62cf35abd2ba6fab4"},
		{"4", key, nonce, plain, aad, c128 + "5bc94fbc3221a5db94fae95ae7121a47"},
		{"7", zero + zero[:16], zero[:24], "", "", "cd33b28ac773f74ba00ed1f312572435"},
		{"8", zero + zero[:16], zero[:24], zero, "", "98e7247c07f0fe411c267e4384b0f6002ff58d80033927ab8ef4d4587514f0fb"},
		{"9", key + key[:16], nonce, plain + rest, "", c192 + "acade2569924a7c8587336bfb118024db8674a14"},
		{"10", key + key[:16], nonce, plain, aad, c192 + "2519498e80f1478f37ba55bd6d27618c"},
		{"13", zero + zero, zero[:24], "", "", "530f8afbc74536b9a963b4f1c4cb738b"},
		{"14", zero + zero, zero[:24], zero, "", "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"},
		{"15", key + key, nonce, plain + rest, "", c256 + "898015adb094dac5d93471bdec1a502270e3cc6c"},
		{"16", key + key, nonce, plain, aad, c256 + "76fc6ece0f4e1768cddf8853bb2d551b"},
	} {
		each(t, fromHex(t, c.key), func(t *testing.T, a AEAD) {
			n, p, d := fromHex(t, c.nonce), fromHex(t, c.plain), fromHex(t, c.aad)
			sealed := a.Seal(nil, n, p, d)
			if got := hex.EncodeToString(sealed); got != c.sealed {
				t.Errorf("case %s: sealed\n%s, want\n%s", c.number, got, c.sealed)
			}
			if got, err := a.Open(nil, n, sealed, d); err != nil || !bytes.Equal(got, p) {
				t.Errorf("case %s: opened %x, %v", c.number, got, err)
			}
		})
	}
}

// TestNewChooses says what falls back.
func TestNewChooses(t *testing.T) {
	for size := range 40 {
		a, err := New(make([]byte, size))
		w := newWide(make([]byte, size))
		switch {
		case (err == nil) != (size == 16 || size == 24 || size == 32):
			t.Errorf("key of %d bytes: %v", size, err)
		case err == nil && fmt.Sprintf("%T", a) != "*gcm.wide" && fmt.Sprintf("%T", a) != "*gcm.standard":
			t.Errorf("key of %d bytes: %T", size, a)
		case size == 24 && w != nil:
			t.Errorf("key of 24 bytes: %T", w)
		case w != nil && fmt.Sprintf("%T", a) != fmt.Sprintf("%T", w) && !fips140.Enabled():
			t.Errorf("key of %d bytes: %T, not %T", size, a, w)
		case err == nil && (a.NonceSize() != 12 || a.Overhead() != 16):
			t.Errorf("nonce %d, overhead %d", a.NonceSize(), a.Overhead())
		}
	}
}

func TestNothingAllocates(t *testing.T) {
	r := rand.NewChaCha8([32]byte{7})
	each(t, random(r, 32), func(t *testing.T, a AEAD) {
		buf, nonce, aad := make([]byte, 1041), make([]byte, 12), make([]byte, 5)
		if n := testing.AllocsPerRun(100, func() {
			a.Seal(buf[:0], nonce, buf[:1025], aad)
			a.SealWith(buf[:0], nonce, buf[:1024], nonce[:1], aad)
			if _, err := a.Open(buf[:0], nonce, buf, aad); err != nil {
				t.Fatal(err)
			}
			a.Seal(buf[16:16], nonce, buf[16:1025], aad)
			if _, err := a.OpenDown(buf[:0], nonce, buf[16:], aad); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

func BenchmarkSealOpen(b *testing.B) {
	for _, bits := range []int{128, 256} {
		key := make([]byte, bits/8)
		std, _ := newStandard(key)
		list := []AEAD{std}
		if w := newWide(key); w != nil {
			list = append(list, w)
		}
		for _, size := range []int{64, 200, 1 << 10, 16 << 10} {
			for i, a := range list {
				name := fmt.Sprintf("aes=%d/size=%d/%s", bits, size, []string{"standard", "wide"}[i])
				b.Run("seal/"+name, func(b *testing.B) { benchSeal(b, a, size) })
				b.Run("open/"+name, func(b *testing.B) { benchOpen(b, a, size) })
			}
		}
	}
}

func benchSeal(b *testing.B, a AEAD, size int) {
	buf, nonce := aligned(5+size+16, 0), make([]byte, 12)
	b.SetBytes(int64(size))
	for b.Loop() {
		a.Seal(buf[:5], nonce, buf[5:5+size], buf[:5])
	}
}

func benchOpen(b *testing.B, a AEAD, size int) {
	dst, nonce, aad := aligned(size, 5), make([]byte, 12), make([]byte, 5)
	sealed := a.Seal(nil, nonce, dst, aad)
	b.SetBytes(int64(size))
	for b.Loop() {
		if _, err := a.Open(dst[:0], nonce, sealed, aad); err != nil {
			b.Fatal(err)
		}
	}
}
