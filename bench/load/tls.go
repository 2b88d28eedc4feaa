package load

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"sluice/bench/machine"
	"sluice/bench/wire"
)

// clientTLS is what a sidecar's side of mutual TLS is: TLS 1.3, a certificate,
// one root.
func clientTLS(dir string) (*tls.Config, error) {
	cert, roots, err := Certificate(dir, "client")
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots, ServerName: "server.example", MinVersion: tls.VersionTLS13,
		CurvePreferences: []tls.CurveID{tls.X25519}}, nil
}

// Certificate reads the certificate of a side, client or server, from dir, and
// the root that both trust.
func Certificate(dir, side string) (cert tls.Certificate, roots *x509.CertPool, err error) {
	if cert, err = tls.LoadX509KeyPair(filepath.Join(dir, side+".pem"), filepath.Join(dir, side+".key")); err != nil {
		return cert, nil, err
	}
	pem, err := os.ReadFile(filepath.Join(dir, "ca.pem"))
	if err != nil {
		return cert, nil, err
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return cert, roots, nil
}

// secured is the work of one goroutine on one connection after another.
type secured struct {
	spec Spec
	conf *tls.Config
	end  *atomic.Bool
	rec  *recorder
	open *atomic.Bool
}

// together runs work on Conns goroutines, and measures.
func together(ctx context.Context, s Spec, work func(context.Context, *secured) error) (r Result, err error) {
	base, err := clientTLS(s.Certs)
	if err != nil {
		return r, err
	}
	var wg sync.WaitGroup
	var end, open atomic.Bool
	var all []*secured
	for range s.Conns {
		w := &secured{spec: s, conf: base.Clone(), end: &end, open: &open, rec: newRecorder(machine.Monotonic)}
		all = append(all, w)
		wg.Go(func() {
			if err := work(ctx, w); err != nil && !end.Load() {
				w.rec.fail(err)
			}
		})
	}
	time.Sleep(s.Warm)
	var win window
	if err := win.open(s); err != nil {
		return r, err
	}
	open.Store(true)
	time.Sleep(s.Length)
	open.Store(false)
	if err := win.close(&r); err != nil {
		return r, err
	}
	end.Store(true)
	wg.Wait()
	sum := newRecorder(machine.Monotonic)
	for _, w := range all {
		sum.merge(w.rec)
	}
	sum.into(&r)
	return r, nil
}

func (w *secured) dial(ctx context.Context) (*tls.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	c, err := d.DialContext(ctx, "tcp", w.spec.To)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(w.spec.Warm + w.spec.Length + 20*time.Second))
	t := tls.Client(c, w.conf)
	if err := t.HandshakeContext(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return t, nil
}

// overTLS runs an engine on each of the TLS connections.
func overTLS(ctx context.Context, s Spec) (Result, error) {
	return together(ctx, s, func(ctx context.Context, w *secured) error {
		c, err := w.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if s.Kind == "up" {
			return w.upload(c)
		}
		return w.converse(c)
	})
}

func (w *secured) upload(c net.Conn) error {
	for b := wire.Body(chunk); !w.end.Load(); {
		n, err := c.Write(b)
		if err != nil {
			return err
		}
		w.rec.counting = w.open.Load()
		w.rec.moved(n)
	}
	return nil
}

func (w *secured) converse(c net.Conn) error {
	e, err := newEngine(w.spec)
	if err != nil {
		return err
	}
	var out []byte
	buf, have := make([]byte, 64<<10), 0
	for !w.end.Load() {
		for e.slots() > 0 {
			out = e.begin(out, machine.Monotonic())
		}
		if len(out) > 0 {
			if _, err := c.Write(out); err != nil {
				return err
			}
			out = out[:0]
		}
		n, err := c.Read(buf[have:])
		if err != nil {
			return err
		}
		have += n
		w.rec.counting = w.open.Load()
		var used int
		if used, out, err = e.feed(buf[:have], out, w.rec); err != nil {
			return err
		}
		have = copy(buf, buf[used:have])
	}
	return nil
}

// handshakes connects, shakes hands both ways, exchanges one message, which
// proves that the proxy took our certificate, and closes. "resume" does it with
// the ticket of the connection before, and every one must be resumed.
func handshakes(ctx context.Context, s Spec) (Result, error) {
	return together(ctx, s, func(ctx context.Context, w *secured) error {
		resume, before := s.Kind == "resume", false
		if resume {
			w.conf.ClientSessionCache = tls.NewLRUClientSessionCache(4)
		}
		message, back := wire.Body(64), make([]byte, 64)
		for !w.end.Load() {
			from := machine.Monotonic()
			c, err := w.dial(ctx)
			if err != nil {
				return err
			}
			if err := exchange(c, message, back); err != nil {
				c.Close()
				return err
			}
			if resumed := c.ConnectionState().DidResume; resumed != (resume && before) {
				c.Close()
				return fmt.Errorf("resumed is %v, want %v", resumed, resume && before)
			}
			before = true
			w.rec.counting = w.open.Load()
			w.rec.done(from)
			c.Close()
		}
		return nil
	})
}

// Exchange sends one message and has it back from an echo.
func Exchange(c io.ReadWriter) error {
	message := wire.Body(64)
	return exchange(c, message, make([]byte, len(message)))
}

func exchange(c io.ReadWriter, message, back []byte) error {
	if _, err := c.Write(message); err != nil {
		return err
	}
	if _, err := io.ReadFull(c, back); err != nil {
		return err
	}
	if string(message) != string(back) {
		return errors.New("an echo that isn't what was sent")
	}
	return nil
}
