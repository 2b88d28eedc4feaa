package conform

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long an upstream waits for bytes; a case's limit ends it earlier.
const patience = 30 * time.Second

// backend is one scripted upstream: it accepts, wraps TLS, hands each connection
// to its protocol and keeps what it saw.
type backend struct {
	name   string
	spec   *backendSpec
	port   int
	folder string

	ctx  context.Context // ends pauses
	stop context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	conns    []*seenConn
	wires    []*wire
	counts   map[string]int
	listener net.Listener
	fill     []int // sockets that fill a backlog
}

// seenConn is what one connection said. The fields are guarded by the backend.
type seenConn struct {
	facts    object // tls, tls_error, from, partial, bad
	requests []object
	bytes    []byte
	isBytes  bool
	end      string
	h2       *h2Conn
}

// newBackend starts the upstream; ctx ends its pauses.
func newBackend(ctx context.Context, name string, spec *backendSpec, port int, folder string) (*backend, error) {
	b := &backend{name: name, spec: spec, port: port, folder: folder, counts: map[string]int{}}
	b.ctx, b.stop = context.WithCancel(ctx)
	if spec.Proto == "down" {
		return b, nil
	}
	if err := b.up(); err != nil {
		return nil, fmt.Errorf("starting upstream %s: %w", name, err)
	}
	return b, nil
}

func (b *backend) up() error {
	if b.spec.Syn {
		return b.fillBacklog()
	}
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, b.port))
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.listener = l
	b.mu.Unlock()
	b.work.Go(func() { b.accept(l) })
	return nil
}

// fillBacklog listens without accepting and lets its own connections fill the
// queue: whoever comes next waits for an answer to its SYN.
func (b *backend) fillBacklog() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	b.fill = append(b.fill, fd)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	addr := &unix.SockaddrInet4{Port: b.port, Addr: [4]byte{127, 0, 0, 1}}
	if err := unix.Bind(fd, addr); err != nil {
		return err
	}
	if err := unix.Listen(fd, 0); err != nil {
		return err
	}
	for range 3 {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		b.fill = append(b.fill, s)
		_ = unix.Connect(s, addr)
	}
	time.Sleep(50 * time.Millisecond)
	return nil
}

// down closes the port and every connection, with rst or fin.
func (b *backend) down(how string) {
	b.mu.Lock()
	wires := slices.Clone(b.wires)
	if b.listener != nil {
		_ = b.listener.Close()
		b.listener = nil
	}
	for _, fd := range b.fill {
		_ = unix.Close(fd)
	}
	b.fill = nil
	b.mu.Unlock()
	for _, w := range wires {
		w.closeBy(how)
	}
}

// close ends everything and waits for it.
func (b *backend) close() {
	b.stop()
	b.down("rst")
	b.work.Wait()
}

func (b *backend) accept(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		b.work.Go(func() { b.serve(newWire(conn.(*net.TCPConn))) })
	}
}

func (b *backend) serve(w *wire) {
	record := &seenConn{facts: object{}}
	if b.spec.From {
		from, _, _ := net.SplitHostPort(w.tcp.RemoteAddr().String())
		record.facts["from"] = from
	}
	b.mu.Lock()
	b.conns = append(b.conns, record)
	b.wires = append(b.wires, w)
	b.mu.Unlock()
	if b.spec.TLS != nil {
		word := serverTLS(w, *b.spec.TLS, b.folder, after(10*time.Second))
		b.mu.Lock()
		if word != "" {
			record.facts["tls_error"] = strings.TrimPrefix(word, "tls:")
		} else {
			record.facts["tls"] = w.tls
		}
		b.mu.Unlock()
		if word != "" {
			return
		}
	}
	switch b.spec.Proto {
	case "h1":
		b.serveH1(w, record)
	case "h2":
		b.serveH2(w, record)
	case "raw":
		b.serveRaw(w, record)
	case "blackhole":
		b.serveBlackhole(w, record)
	default:
		b.serveTCP(w, record)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if record.end == "" {
		record.end = w.endOr("open")
	}
}

// note changes a record.
func (b *backend) note(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *backend) pause(ms float64) { pause(b.ctx, millis(ms)) }

// nextReply is the next scripted answer: of the path under `paths`, else of
// `respond`; the last one repeats.
func (b *backend) nextReply(path string) *reply {
	key, _, _ := strings.Cut(path, "?")
	s, ok := b.spec.Paths[key]
	if !ok {
		key = ""
		if b.spec.Respond != nil {
			s = *b.spec.Respond
		}
	}
	b.mu.Lock()
	b.counts[key]++
	n := b.counts[key]
	b.mu.Unlock()
	if s.echo {
		return &reply{echo: true}
	}
	if len(s.replies) == 0 {
		return &reply{}
	}
	return &s.replies[min(n, len(s.replies))-1]
}

// filled is status, headers and body of a reply; echo tells the request.
func (r *reply) filled(request object) (status int, fields []pair, body []byte, hasBody bool) {
	if r.echo {
		return 200, []pair{{"content-type", "application/json"}}, rawBytes(dumped(request)), true
	}
	if status = r.Status; status == 0 {
		status = 200
	}
	body, hasBody, _ = r.whole("")
	return status, slices.Clone([]pair(r.Headers)), body, hasBody
}

// seen is what the upstream saw, without connections that said nothing (a proxy
// may open one ahead).
func (b *backend) seen() []any {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []any{}
	for _, c := range b.conns {
		shown := object{}
		for k, v := range c.facts {
			shown[k] = v
		}
		if b.spec.Ends {
			shown["end"] = textOr(c.end, "open")
		}
		if c.h2 != nil && b.spec.Log != nil {
			shown["frames"] = c.h2.framesOf(b.spec.Log)
		}
		if c.requests != nil {
			requests := make([]any, len(c.requests))
			for i, r := range c.requests {
				copied := object{}
				for k, v := range r {
					copied[k] = v
				}
				requests[i] = copied
			}
			shown["requests"] = requests
		}
		if c.isBytes {
			shown["bytes"] = text(c.bytes)
		}
		if _, failed := c.facts["tls_error"]; failed || c.isBytes || len(c.requests) > 0 {
			out = append(out, shown)
		}
	}
	return out
}

func (c *h2Conn) framesOf(kinds []string) []any {
	c.state.Lock()
	defer c.state.Unlock()
	out := []any{}
	for _, f := range c.log {
		if slices.Contains(kinds, f.kind) {
			out = append(out, f.shown())
		}
	}
	return out
}

// stopped says whether the script ends the connection at this point, and ends it.
func (r *reply) stopped(w *wire, at point) bool {
	switch at {
	case r.Reset:
		if at != "before" {
			time.Sleep(50 * time.Millisecond) // a RST overtakes bytes the peer has not read yet
		}
		w.closeBy("rst")
	case r.Close:
		w.halfClose()
	default:
		return false
	}
	return true
}
