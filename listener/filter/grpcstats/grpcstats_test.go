package grpcstats

import "testing"

func TestMessagesAreCountedHoweverTheyAreCut(t *testing.T) {
	stream := []byte("\x00\x00\x00\x00\x03abc\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02hi")
	for size := 1; size <= len(stream); size++ {
		var state, n uint64
		for p := stream; len(p) > 0; {
			k := min(size, len(p))
			n += messages(&state, p[:k])
			p = p[k:]
		}
		if n != 3 {
			t.Errorf("in pieces of %d: %d messages, want 3", size, n)
		}
	}
}
