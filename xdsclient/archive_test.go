package xdsclient

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
)

func FuzzArchiveGivesBackWhatItWasGiven(f *testing.F) {
	f.Add([]byte(""), []byte("a"), true)
	f.Add([]byte(strings.Repeat("ab", 300)), []byte(strings.Repeat("ab", 299)+"c"), false)
	noise := make([]byte, 5000)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	f.Add(noise, noise[100:], false)
	f.Fuzz(func(t *testing.T, x, y []byte, closed bool) {
		a := archive{closed: closed}
		bodies := [][]byte{x, y, append(x[:len(x):len(x)], y...), x, bytes.Repeat(y, 3)}
		var kept [][]byte
		for _, b := range bodies {
			kept = append(kept, a.pack(b))
		}
		for i, b := range bodies {
			if got := a.unpack(kept[i]); kept[i] == nil || !bytes.Equal(got, b) {
				t.Fatalf("%q became %q", b, got)
			}
		}
	})
}

func TestAMeshsResourcesTakeAFractionInTheArchive(t *testing.T) {
	for _, push := range []*answer{bigClusters(t, 1000), bigEndpoints(t, 1000, "1", 80)} {
		var a archive
		came, kept := 0, 0
		for _, r := range push.resources {
			came += len(r.body.Value)
			kept += len(a.pack(r.body.Value))
		}
		t.Logf("%d bytes are kept as %d, dictionary %d", came, kept, len(a.dict))
		if kept*2 > came || len(a.dict) > dictSize {
			t.Errorf("%d bytes are kept as %d, dictionary %d", came, kept, len(a.dict))
		}
	}
}

func BenchmarkArchive(b *testing.B) {
	push := bigEndpoints(b, 1000, "1", 80)
	var a archive
	b.SetBytes(int64(len(push.resources[0].body.Value)))
	for i := range b.N {
		a.pack(push.resources[i%1000].body.Value)
	}
}
