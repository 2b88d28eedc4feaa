package tlsconn

import (
	"bytes"
	"crypto/tls"
	"math/rand/v2"
	"testing"
)

// pair makes both ends of one direction.
func pair(t *testing.T, suite uint16) (from, to *records) {
	t.Helper()
	end := func() *half {
		h, err := newHalf(suite, bytes.Repeat([]byte{7}, map[uint16]int{tls.TLS_AES_128_GCM_SHA256: 32, tls.TLS_AES_256_GCM_SHA384: 48}[suite]))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	return &records{wr: end()}, &records{rd: end(), client: true}
}

// TestOpenPacks opens many records at once, tickets and a change of key among
// them: what comes out is the content alone, at the beginning of the buffer.
func TestOpenPacks(t *testing.T) {
	for _, suite := range []uint16{tls.TLS_AES_128_GCM_SHA256, tls.TLS_AES_256_GCM_SHA384} {
		from, to := pair(t, suite)
		r := rand.NewChaCha8([32]byte{1})
		for round := range 40 {
			var wire, want []byte
			for i := range 12 {
				p := make([]byte, []int{1, 5, 255, 256, 300, 1000, 1024, 4000, 16384}[int(r.Uint64()%9)])
				r.Read(p)
				want = append(want, p...)
				from.owesKey = i == 5
				wire = from.Seal(wire, p)
				if i%3 == 1 {
					wire = from.wr.seal(wire, recordHandshake, append([]byte{msgTicket, 0, 0, 40}, make([]byte, 40)...))
				}
			}
			short := int(r.Uint64() % 6) // of the last record's end
			plain, used, err := to.Open(wire[:len(wire)-short])
			rest := wire[used:]
			got := bytes.Clone(plain)
			if len(plain) > 0 && &plain[0] != &wire[0] {
				t.Fatal("the content is elsewhere")
			}
			if err == nil && short > 0 {
				plain, used, err = to.Open(rest)
				got, rest = append(got, plain...), rest[used:]
			}
			if err != nil || len(rest) > 0 || !bytes.Equal(got, want) {
				t.Fatalf("round %d: %d of %d bytes, %d left: %v", round, len(got), len(want), len(rest), err)
			}
		}
	}
}

// TestOpenStopsAtAForgery gives the records before a forged one, and nothing of it.
func TestOpenStopsAtAForgery(t *testing.T) {
	for _, size := range []int{1, 100, 600, 16384} {
		from, to := pair(t, tls.TLS_AES_128_GCM_SHA256)
		first := bytes.Repeat([]byte("good"), 50)
		wire := from.Seal(nil, first)
		at := len(wire)
		wire = from.Seal(wire, bytes.Repeat([]byte("SECRET.."), size)[:size])
		wire[at+headerLen+size/2] ^= 1
		plain, used, err := to.Open(wire)
		if err == nil || used < at || !bytes.Equal(plain, first) || bytes.Contains(wire, []byte("SECRET")) {
			t.Errorf("%d bytes: %q, %d used, %v", size, plain, used, err)
		}
		if to.alert != alertBadMAC {
			t.Errorf("alert %d", to.alert)
		}
	}
}

// TestKeyUpdatesAreWorthTheirCost: a byte of data between them doesn't make a flood
// of them a good one, and rekeying often is no flood.
func TestKeyUpdatesAreWorthTheirCost(t *testing.T) {
	for _, x := range []struct{ size, times, want int }{{1, 3 * maxRekeys, maxRekeys}, {rekeyData, 3 * maxRekeys, 3 * maxRekeys * rekeyData}} {
		from, to := pair(t, tls.TLS_AES_128_GCM_SHA256)
		var wire []byte
		for range x.times {
			from.owesKey = true
			wire = from.Seal(wire, make([]byte, x.size))
		}
		plain, _, err := to.Open(wire)
		if len(plain) != x.want || (err != nil) != (x.want < x.times*x.size) {
			t.Errorf("%d bytes between: %d of %d came, %v", x.size, len(plain), x.times*x.size, err)
		}
	}
}
