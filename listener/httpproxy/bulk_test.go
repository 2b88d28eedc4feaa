package httpproxy

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"
)

// noise is content in which a lost or doubled part shows.
func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func TestLargeResponsesArriveByteForByteAndTheConnectionGoesOn(t *testing.T) {
	content := noise(5<<20 + 77)
	b := start(t, hcm(to("/", "a")), static("a", origin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		for p := content; len(p) > 0; {
			n := min(len(p), 700<<10)
			_, _ = w.Write(p[:n])
			p = p[n:]
		}
	})))
	c := http.Client{Transport: &http.Transport{ReadBufferSize: 1 << 20}}
	for i := range 4 {
		resp, err := c.Get("http://" + b.addr + "/big")
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			time.Sleep(200 * time.Millisecond) // the proxy has to wait for us
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || !bytes.Equal(got, content) {
			t.Fatalf("answer %d: %d of %d bytes, %v", i, len(got), len(content), err)
		}
	}
	c.CloseIdleConnections()
	if n := b.stat("cluster.a.upstream_cx_total"); n != 1 {
		t.Errorf("%d upstream connections, want 1", n)
	}
	if n := b.stat("http.in.downstream_cx_total"); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	if l := b.logged(4); l[3] != "GET /big 200 - via_upstream 1" {
		t.Error(l)
	}
}

func TestLargeResponseThatIsCutEndsTheConnection(t *testing.T) {
	content := noise(3 << 20)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n"))
			_, _ = c.Write(content)
			c.Close()
		}
	}()
	b := start(t, hcm(to("/", "a")), static("a", l.Addr().String()))
	resp, err := http.Get("http://" + b.addr + "/cut")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	if err == nil || !bytes.HasPrefix(content, got) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if l := b.logged(1); l[0] != "GET /cut 200 UPE upstream_reset_after_response_started{protocol_error} 1" {
		t.Error(l)
	}
}

func TestClientThatLeavesALargeResponseEndsTheUpstreamConnection(t *testing.T) {
	content := noise(8 << 20)
	b := start(t, hcm(to("/", "a")), static("a", origin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content)
	})))
	c := b.dial()
	c.send("GET /left HTTP/1.1\r\nHost: a\r\n\r\n")
	c.expect("HTTP/1.1 200 OK")
	time.Sleep(100 * time.Millisecond)
	c.Close()
	if l := b.logged(1); l[0] != "GET /left 200 DC downstream_remote_disconnect 1" {
		t.Error(l)
	}
	b.await("cluster.a.upstream_cx_active", 0)
}
