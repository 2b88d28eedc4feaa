//go:build linux

package netns

import (
	"context"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"
)

func TestPodsReachEachOtherOnly(t *testing.T) {
	if testing.Short() {
		t.Skip("makes network namespaces")
	}
	hub := netip.MustParseAddr("10.247.255.1")
	top, err := New("slnt", hub, 16)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := top.Close(); err != nil {
			t.Error(err)
		}
	}()
	a, err := top.Add("a", netip.MustParseAddr("10.247.0.1"), 16)
	if err != nil {
		t.Fatal(err)
	}
	b, err := top.Add("b", netip.MustParseAddr("10.247.0.2"), 16)
	if err != nil {
		t.Fatal(err)
	}
	l, err := b.Listen("0.0.0.0:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = io.WriteString(c, c.RemoteAddr().String())
			c.Close()
		}
	}()
	c, err := a.Dial(context.Background(), "10.247.0.2:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	if from, err := netip.ParseAddrPort(string(got)); err != nil || from.Addr() != a.Addr {
		t.Fatalf("b saw %q, want an address of a (%v)", got, a.Addr)
	}
	if out, err := a.Command(context.Background(), 1337, "id", "-u").Output(); err != nil || string(out) != "1337\n" {
		t.Fatalf("a program as 1337 ran as %q, %v", out, err)
	}
}

// TestASecondTopologyLeavesTheFirst: two of the same prefix can't be, and the one
// that comes late must not take the other's namespaces down.
func TestASecondTopologyLeavesTheFirst(t *testing.T) {
	if testing.Short() {
		t.Skip("makes network namespaces")
	}
	hub := netip.MustParseAddr("10.247.255.1")
	first, err := New("slnu", hub, 16)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New("slnu", hub, 16); err == nil || !strings.Contains(err.Error(), "slnu-cp is there already") {
		t.Errorf("a second one: %v", err)
	}
	if _, err := os.Stat(first.Hub().path); err != nil {
		t.Errorf("the first one's namespace: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
}
