package rsakey

import (
	"bytes"
	"crypto"
	_ "crypto/md5"
	"crypto/rand"
	"crypto/rsa"
	_ "crypto/sha1"
	_ "crypto/sha3"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/iotest"
)

// outcome is what a call of Sign did, in a form to compare.
func outcome(s crypto.Signer, random io.Reader, digest []byte, opts crypto.SignerOpts) (out string) {
	defer func() {
		if r := recover(); r != nil {
			out = fmt.Sprint("panic: ", r)
		}
	}()
	sig, err := s.Sign(random, digest, opts)
	return fmt.Sprintf("%x, %v", sig, err)
}

// pattern is a source of random bytes that gives the same ones every time.
func pattern(seed byte) io.Reader {
	return bytes.NewReader(bytes.Repeat([]byte{seed, 0, 0xff, seed ^ 0x5a}, 200))
}

// allHashes are those that this package encodes, some that it leaves to crypto/rsa,
// one that isn't linked in, and none.
func allHashes() []crypto.Hash {
	return []crypto.Hash{crypto.SHA1, crypto.SHA224, crypto.SHA256, crypto.SHA384, crypto.SHA512, crypto.SHA512_256,
		crypto.SHA3_256, crypto.MD5, crypto.MD5SHA1, crypto.RIPEMD160, 0}
}

// allOptions are a hash's for Sign, with salts of every kind and beyond limits.
func allOptions(h crypto.Hash) []crypto.SignerOpts {
	all := []crypto.SignerOpts{h}
	for _, n := range []int{rsa.PSSSaltLengthAuto, rsa.PSSSaltLengthEqualsHash, 1, 20, 32, 189, 190, 191, 206, 221, 222, 223, 234, 235, 1 << 20, -2, -300} {
		all = append(all, &rsa.PSSOptions{SaltLength: n, Hash: h})
	}
	return append(all, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthAuto, Hash: h})
}

// TestSameAsStandard compares signatures and errors byte by byte, of every hash
// with every kind of padding, digests of wrong lengths among them.
func TestSameAsStandard(t *testing.T) {
	key := fixed(t, "key1")
	f := Fast(key)
	for _, h := range allHashes() {
		size := 36
		if h != 0 {
			size = h.Size()
		}
		for _, opts := range allOptions(h) {
			for _, n := range []int{size, size - 1, size + 1, 0} {
				digest := bytes.Repeat([]byte{0x5a, 0xff, 0, byte(n)}, 30)[:n]
				got, want := outcome(f, pattern(7), digest, opts), outcome(key, pattern(7), digest, opts)
				if got != want {
					t.Errorf("%v, %+v, digest of %d bytes:\n%s, want\n%s", h, opts, n, got, want)
				}
			}
		}
	}
}

// TestEveryKind of key signs messages as crypto/rsa does.
func TestEveryKind(t *testing.T) {
	for name, key := range keys(t) {
		t.Run(name, func(t *testing.T) {
			f := Fast(key)
			if supportedHere() != (f != crypto.Signer(key)) {
				t.Fatalf("the signer is %T", f)
			}
			digest := make([]byte, 32)
			for i := range 40 {
				rand.Read(digest)
				same(t, key, f, digest, byte(i))
			}
		})
	}
}

// same compares with crypto/rsa what f makes of a digest.
func same(t *testing.T, key *rsa.PrivateKey, f crypto.Signer, digest []byte, seed byte) {
	t.Helper()
	for _, opts := range []crypto.SignerOpts{crypto.SHA256, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}} {
		if got, want := outcome(f, pattern(seed), digest, opts), outcome(key, pattern(seed), digest, opts); got != want {
			t.Fatalf("%x, %+v:\n%s, want\n%s", digest, opts, got, want)
		}
	}
	auto := &rsa.PSSOptions{Hash: crypto.SHA256}
	sig, err := f.Sign(rand.Reader, digest, auto)
	if err != nil {
		t.Fatal(err)
	}
	if err := rsa.VerifyPSS(&key.PublicKey, crypto.SHA256, digest, sig, auto); err != nil {
		t.Fatal(err)
	}
}

func FuzzSign(f *testing.F) {
	key := fixed(f, "key2")
	signer := Fast(key)
	f.Add(make([]byte, 32), byte(0))
	f.Fuzz(func(t *testing.T, digest []byte, seed byte) {
		same(t, key, signer, append(digest, make([]byte, 32)...)[:32], seed)
	})
}

// TestAtOnce has one signer sign for many.
func TestAtOnce(t *testing.T) {
	key := fixed(t, "key1")
	f, digest := Fast(key), make([]byte, 32)
	want := outcome(key, nil, digest, crypto.SHA256)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20 {
				if got := outcome(f, nil, digest, crypto.SHA256); got != want {
					t.Error(got)
				}
			}
		})
	}
	all.Wait()
}

func TestSaltsDiffer(t *testing.T) {
	f, opts := Fast(fixed(t, "key1")), &rsa.PSSOptions{Hash: crypto.SHA256}
	a, b := outcome(f, rand.Reader, make([]byte, 32), opts), outcome(f, rand.Reader, make([]byte, 32), opts)
	if a == b {
		t.Error("two signatures have one salt")
	}
}

// TestNoRandomness: nothing is signed without a salt.
func TestNoRandomness(t *testing.T) {
	f, opts := Fast(fixed(t, "key1")), &rsa.PSSOptions{Hash: crypto.SHA256}
	broken := errors.New("broken")
	if sig, err := f.Sign(iotest.ErrReader(broken), make([]byte, 32), opts); sig != nil || !errors.Is(err, broken) {
		t.Errorf("%x, %v", sig, err)
	}
	if sig, err := f.Sign(bytes.NewReader(make([]byte, 20)), make([]byte, 32), opts); sig != nil || err == nil {
		t.Errorf("%x, %v", sig, err)
	}
}

func TestDecrypts(t *testing.T) {
	key := fixed(t, "key1")
	text, err := rsa.EncryptOAEP(crypto.SHA256.New(), rand.Reader, &key.PublicKey, []byte("a secret"), nil)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := Fast(key).(crypto.Decrypter).Decrypt(nil, text, &rsa.OAEPOptions{Hash: crypto.SHA256})
	if err != nil || string(plain) != "a secret" {
		t.Errorf("%q, %v", plain, err)
	}
}

// TestPublic: crypto/tls looks at the type.
func TestPublic(t *testing.T) {
	key := fixed(t, "key1")
	if pub, ok := Fast(key).Public().(*rsa.PublicKey); !ok || !pub.Equal(&key.PublicKey) {
		t.Errorf("%T", Fast(key).Public())
	}
}

func TestAllocations(t *testing.T) {
	if !supportedHere() {
		t.Skip("crypto/rsa's are its own")
	}
	f, digest := Fast(fixed(t, "key1")), make([]byte, 32)
	opts := &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
	for _, c := range []struct {
		opts crypto.SignerOpts
		most float64
	}{{crypto.SHA256, 1}, {opts, 5}} {
		if n := testing.AllocsPerRun(20, func() { f.Sign(rand.Reader, digest, c.opts) }); n > c.most {
			t.Errorf("%T: %v allocations", c.opts, n)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	key, digest := fixed(b, "key1"), make([]byte, 32)
	pss := &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthEqualsHash, Hash: crypto.SHA256}
	for _, s := range []crypto.Signer{key, Fast(key)} {
		for _, opts := range []crypto.SignerOpts{crypto.SHA256, pss} {
			b.Run(fmt.Sprintf("%T/%T", s, opts), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.Sign(rand.Reader, digest, opts); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkFast(b *testing.B) {
	key := fixed(b, "key1")
	b.ReportAllocs()
	for b.Loop() {
		Fast(key)
	}
}
