package h1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"sluice/internal/httpmsg"
)

// forwarder passes what a Server understood on by a Client, as a proxy does.
type forwarder struct {
	up      *Client
	wire    *wire
	s, to   httpmsg.Stream
	saw     strings.Builder
	body    []byte
	whole   int
	refused bool
}

func (f *forwarder) OnStream(s httpmsg.Stream) httpmsg.Receiver { f.s = s; return f }
func (f *forwarder) OnGone()                                    {}
func (f *forwarder) OnDrain()                                   {}
func (f *forwarder) OnReset(r httpmsg.ResetReason) {
	f.refused = true
}

func (f *forwarder) OnHead(h *httpmsg.Head, end bool) {
	h.Del(httpmsg.Connection)
	h.Del(httpmsg.Upgrade)
	f.up = NewClient(f.wire, &Options{EnableTrailers: true})
	f.to = f.up.Open(&log{})
	fmt.Fprintf(&f.saw, "%s %s %s", h.Method(), h.Path(), h.Authority())
	f.body = nil
	f.to.SendHead(h, end)
	f.over(end)
}

func (f *forwarder) OnData(p []byte, end bool) {
	f.body = append(f.body, p...)
	f.to.SendData(p, end)
	f.over(end)
}

func (f *forwarder) OnTrailers(h *httpmsg.Head) {
	f.to.SendTrailers(h)
	f.over(true)
}

func (f *forwarder) over(end bool) {
	if end {
		f.whole = len(f.wire.out)
		fmt.Fprintf(&f.saw, " %q\n", f.body)
		reply(f.s, 200, "ok")
	}
}

// passOn gives the whole requests that went upstream, and what was seen of them.
func passOn(in string, cuts ...int) (out, saw string, refused bool) {
	f := &forwarder{wire: &wire{}}
	w := &wire{}
	s := NewServer(w, f, &Options{EnableTrailers: true, AcceptHTTP10: true, DefaultHost: "d", AllowAbsoluteURL: true, IgnoreUpgrade: func([]byte) bool { return true }})
	d := &driver{w: w, feed: s.Feed}
	at := 0
	for _, c := range append(cuts, len(in)) {
		d.push(in[at:c])
		at = c
	}
	seen := f.saw.String()
	return string(f.wire.out[:f.whole]), seen[:strings.LastIndexByte(seen, '\n')+1], f.refused
}

// oracle is what net/http sees in what went upstream.
func oracle(in string) (saw string, err error) {
	b := bufio.NewReader(strings.NewReader(in))
	for {
		r, err := http.ReadRequest(b)
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return saw, err
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return saw, err
		}
		saw += fmt.Sprintf("%s %s %s %q\n", r.Method, r.RequestURI, r.Host, body)
	}
}

// oddRequest is a request of pieces that parsers are known to disagree about.
func oddRequest(r *rand.Rand) string {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	end := func() string {
		if r.IntN(4) > 0 {
			return "\r\n"
		}
		return pick("\n", "\r\n ", "\n\t", "\r\n\r\n", "\r", " \r\n", "\n\n", "\r\r\n")
	}
	var b bytes.Buffer
	b.WriteString(pick("", "", "", "\r\n", "\n") + pick("GET", "POST", "PUT") + pick(" ", " ", "\t", "  ") + pick("/a", "/b", "http://h/c", "/d?e") + pick(" HTTP/1.1", " HTTP/1.1", " HTTP/1.0", " HTTP/1.1 ", "") + end())
	b.WriteString(pick("Host: h", "host:h", "Host: h\t") + end())
	for range r.IntN(4) {
		b.WriteString(pick("Content-Length", "Transfer-Encoding", "X", "Connection", "content-length", "Trailer", "Expect") +
			pick(": ", ":", ":\t", " :", ":\r\n ", ":\n\t") +
			pick("5", "0", "chunked", "5\r\n ", "Chunked", "y", "close", "keep-alive", "chunked\r\n\t", "05", "identity", "100-continue", "0\n 5") + end())
	}
	b.WriteString(pick("\r\n", "\r\n", "\n"))
	for range r.IntN(4) {
		b.WriteString(pick("hello", "5\r\nhello\r\n", "0\r\n\r\n", "5;x\nhello\r\n", "5\nhello\n", "0\n\n", "5;x=\r\n\r\nhello\r\n", "0\r\nX: y\n\n", "0\r\nContent-Length: 9\r\n\r\n", "0\r\nX: y\r\n z\r\n\r\n", "00\r\n\r\n", "5 \r\nhello\r\n", "GET /s HTTP/1.1\nHost: h\n\n"))
	}
	return b.String()
}

// What goes upstream is read by another parser as the requests that were seen
// here, no more and no less, however the bytes came in pieces.
func TestWhatGoesUpstreamIsWhatWasSeen(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	accepted := 0
	for range 8000 {
		in := ""
		for range 1 + r.IntN(3) {
			in += oddRequest(r)
		}
		out, saw, refused := passOn(in)
		got, err := oracle(out)
		if err != nil || got != saw {
			t.Fatalf("%q\nwent upstream as %q\nseen %q\nbut net/http sees %q, %v", in, out, saw, got, err)
		}
		accepted += strings.Count(saw, "\n")
		cuts := []int{r.IntN(len(in))}
		for len(cuts) < 4 && cuts[len(cuts)-1] < len(in)-1 {
			last := cuts[len(cuts)-1]
			cuts = append(cuts, last+r.IntN(len(in)-last))
		}
		if out2, saw2, refused2 := passOn(in, cuts...); out2 != out && saw2 != saw || refused2 != refused {
			t.Fatalf("%q cut at %v\nsees %q (refused %v)\nwhole %q (refused %v)", in, cuts, saw2, refused2, saw, refused)
		}
	}
	t.Log(accepted, "requests accepted")
}

// Two Expect lines are a list, which is no 100-continue: it goes to the upstream.
func TestTwoExpectLinesAreNotAnswered(t *testing.T) {
	for in, want := range map[string]string{
		"Expect: 100-continue\r\n": "HTTP/1.1 100 Continue\r\n\r\n", "Expect: 100-Continue \r\n": "HTTP/1.1 100 Continue\r\n\r\n",
		"Expect: 100-continue\r\nExpect: x\r\n": "", "Expect: x\r\nExpect: 100-continue\r\n": "", "Expect: 100-continue, x\r\n": "",
	} {
		_, d, _ := newServer(Options{AutoContinue: true})
		d.push("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n" + in + "\r\n")
		if got := string(d.w.out); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
