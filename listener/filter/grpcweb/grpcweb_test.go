package grpcweb

import (
	"encoding/base64"
	"testing"

	"sluice/internal/httpmsg"
	"sluice/listener/filter"
)

func TestTextIsDecodedHoweverItIsCut(t *testing.T) {
	want := "\x00\x00\x00\x00\x02hi"
	text := []byte(base64.StdEncoding.EncodeToString([]byte(want)))
	for size := 1; size <= len(text); size++ {
		var s filter.Slot
		var got []byte
		for p := text; len(p) > 0; {
			k := min(size, len(p))
			out, ok := decode(&s, p[:k])
			if !ok {
				t.Fatalf("pieces of %d: refused", size)
			}
			got, p = append(got, out...), p[k:]
		}
		if string(got) != want || s.N[pending] != 0 {
			t.Errorf("pieces of %d: %q", size, got)
		}
	}
}

func TestBrokenTextIsRefused(t *testing.T) {
	for _, in := range []string{"not base64!!", "A===", "=AAA", "AA\x00A"} {
		var s filter.Slot
		if out, ok := decode(&s, []byte(in)); ok {
			t.Errorf("%q: taken as %q", in, out)
		}
	}
}

func TestTrailersBecomeTheLastMessage(t *testing.T) {
	var h httpmsg.Head
	h.AddName("grpc-status", []byte("0"))
	h.AddName("x-t", []byte("1"))
	s := filter.Slot{}
	if _, ok := New().TrailersAsData(nil, &s, &h); ok {
		t.Error("of a request that isn't gRPC-Web")
	}
	s.N[flags] = web
	if p, ok := New().TrailersAsData(nil, &s, &h); !ok || string(p) != "\x80\x00\x00\x00\x16grpc-status:0\r\nx-t:1\r\n" {
		t.Errorf("%q", p)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("AAAAAAJoaQ=="), 3)
	f.Fuzz(func(t *testing.T, in []byte, cut int) {
		var s filter.Slot
		cut = max(0, min(cut, len(in)))
		if _, ok := decode(&s, in[:cut]); ok {
			decode(&s, in[cut:])
		}
		if s.N[pending] > 3 {
			t.Errorf("%d bytes of a quantum", s.N[pending])
		}
	})
}
