package load

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sluice/bench/origin"
)

// serve starts a back end on loopback and gives its address.
func serve(t *testing.T, kind string, size int) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(l.Addr().String())
	l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	var ready bytes.Buffer
	go func() { done <- origin.Serve(ctx, kind, at, size, &ready) }() // ends with the test
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for range 100 {
		if c, err := net.Dial("tcp", at.String()); err == nil {
			c.Close()
			return at
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the back end does not listen")
	return at
}

func TestLoadsAndBackEndsAgree(t *testing.T) {
	for _, c := range []struct {
		name, origin string
		size         int
		spec         Spec
	}{
		{"h1", "h1", 1024, Spec{Kind: "h1", Conns: 2, Size: 1024}},
		{"a megabyte", "h1", 1 << 20, Spec{Kind: "h1", Conns: 2, Size: 1 << 20}},
		{"a rate", "h1", 1024, Spec{Kind: "h1", Conns: 4, Size: 1024, Rate: 500, Idle: 3}},
		{"h2", "h2", 1024, Spec{Kind: "h2", Conns: 2, Streams: 20, Size: 1024}},
		{"grpc", "grpc", 200, Spec{Kind: "grpc", Conns: 2, Streams: 20, Size: 200}},
		{"stream", "stream", 200, Spec{Kind: "stream", Conns: 2, Streams: 20, Size: 200}},
		{"pingpong", "echo", 0, Spec{Kind: "pingpong", Conns: 2, Size: 64}},
		{"down", "source", 0, Spec{Kind: "down", Conns: 2}},
		{"up", "sink", 0, Spec{Kind: "up", Conns: 2}},
		{"short", "echo", 0, Spec{Kind: "short", Conns: 2, Size: 64}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.spec
			s.To = serve(t, c.origin, c.size).String()
			s.Warm, s.Length = 50*time.Millisecond, 200*time.Millisecond
			var out bytes.Buffer
			if err := Run(t.Context(), s, &out); err != nil {
				t.Fatal(err)
			}
			var r Result
			if err := json.Unmarshal(out.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			if r.Errors > 0 || r.Units == 0 {
				t.Fatalf("%d units, %d errors: %s", r.Units, r.Errors, r.Error)
			}
			if want := uint64(s.Rate * s.Length.Seconds()); s.Rate > 0 && (r.Units < want*8/10 || r.Units > want*12/10) {
				t.Errorf("%d units at a rate of %.0f, want about %d", r.Units, s.Rate, want)
			}
		})
	}
}

func TestWrongLengthIsAnError(t *testing.T) {
	s := Spec{Kind: "h1", Conns: 1, Size: 1024, To: serve(t, "h1", 1000).String(), Length: 100 * time.Millisecond}
	var out bytes.Buffer
	if err := Run(t.Context(), s, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "answer of 1000 bytes") {
		t.Errorf("the result does not tell: %s", out.String())
	}
}
