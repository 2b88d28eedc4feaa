package h2

import (
	"testing"

	"sluice/internal/httpmsg"
)

// busy has no time for more than one request at once.
type busy struct {
	log
	s    *Server
	took int
}

func (b *busy) OnStream(s httpmsg.Stream) httpmsg.Receiver {
	b.took++
	b.s.Yield()
	return b.log.OnStream(s)
}

func TestFeedEndsAfterARequestThatYields(t *testing.T) {
	w, b := &wire{}, &busy{}
	b.s = NewServer(w, b, &Options{})
	p := newPeer(t, w, b.s.Feed)
	in := append([]byte(preface), fr(frameSettings, 0, 0, "")...)
	for id := uint32(1); id < 10; id += 2 {
		in = append(in, p.get(id, true)...)
	}
	for want := 1; want <= 5; want++ {
		n, err := b.s.Feed(in)
		if in = in[n:]; err != nil || b.took != want {
			t.Fatalf("%d requests taken, not %d; error %v", b.took, want, err)
		}
	}
	if len(in) > 0 {
		t.Errorf("%d bytes are left", len(in))
	}
}
