package identity

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"sluice/internal/config"
)

// Back-off between failed attempts to get a certificate.
const (
	retryFirst = 500 * time.Millisecond
	retryLast  = 30 * time.Second
)

// look is how often the wall clock and mounted files are looked at. Timers run
// on the monotonic clock, which doesn't see a jump of the wall clock, and a
// certificate expires by the latter.
const look = time.Second

// signTimeout bounds one request to the CA.
const signTimeout = 10 * time.Second

// Files are mounted certificates, used in place of the CA.
type Files struct{ Chain, Key, Root string }

// Options say how the workload gets its certificate.
type Options struct {
	ID       string // SPIFFE id asked for
	CA       *Peer  // nil with Mounted
	Mounted  *Files
	TTL      time.Duration // 24 h when 0
	RSABits  int           // 0: P-256
	Signer   string        // CertSigner, "" mostly
	CRLFile  string        // used when it exists
	Grace    float64       // share of the lifetime left at renewal, 0.5 when 0
	Jitter   float64       // of Grace, 0.01 when 0
	Logf     func(string, ...any)
	ExtraPEM func() []byte // more roots (a trust bundle); may be nil
}

// Source keeps the workload's secrets fresh. Run it once; the other methods may
// be called from any goroutine.
type Source struct {
	o       Options
	out     chan *config.Secret
	current atomic.Pointer[state]
	problem atomic.Pointer[string]
}

type state struct {
	own, root *config.Secret
	bundle    []byte
	pair      uint64    // hash of the mounted files that own was made of
	renew     time.Time // wall clock
}

// NewSource prepares a source.
func NewSource(o Options) *Source {
	if o.TTL == 0 {
		o.TTL = 24 * time.Hour
	}
	if o.Grace == 0 {
		o.Grace = 0.5
	}
	if o.Jitter == 0 {
		o.Jitter = 0.01
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return &Source{o: o, out: make(chan *config.Secret, 8)}
}

// Secrets brings "default" and "ROOTCA", again whenever they change.
func (s *Source) Secrets() <-chan *config.Secret { return s.out }

// Certificate gives the present certificate, nil before there is one.
func (s *Source) Certificate() *tls.Certificate {
	if st := s.current.Load(); st != nil && st.own != nil {
		return st.own.Certificate
	}
	return nil
}

// Expiry is when the present certificate expires, zero before there is one.
func (s *Source) Expiry() time.Time {
	if c := s.Certificate(); c != nil {
		return c.Leaf.NotAfter
	}
	return time.Time{}
}

// Problem says why there is no (new) certificate, "" when all is well.
func (s *Source) Problem() string {
	if p := s.problem.Load(); p != nil {
		return *p
	}
	return ""
}

// Run gets certificates until ctx ends. Failures are retried for ever; what was
// there before serves on.
func (s *Source) Run(ctx context.Context) error {
	defer close(s.out)
	wait := retryFirst
	for ctx.Err() == nil {
		err := s.refresh(ctx)
		if err != nil {
			why := Explain(err, s.address())
			s.problem.Store(&why)
			s.o.Logf("workload certificate: %s; trying again", why)
			if !sleep(ctx, jitter(wait)) {
				return nil
			}
			wait = min(2*wait, retryLast)
			continue
		}
		s.problem.Store(nil)
		wait = retryFirst
		if !s.until(ctx) {
			return nil
		}
	}
	return nil
}

func (s *Source) address() string {
	if s.o.CA != nil {
		return s.o.CA.Address
	}
	return "mounted files"
}

func (s *Source) refresh(ctx context.Context) error {
	if s.o.Mounted != nil {
		return s.load(ctx)
	}
	key, err := newKey(s.o.RSABits)
	if err != nil {
		return fmt.Errorf("making a key: %w", err)
	}
	csr, err := newCSR(key, s.o.ID)
	if err != nil {
		return err
	}
	cc, err := s.o.CA.Dial(ctx) // anew each time: a failure may be a stale root
	if err != nil {
		return err
	}
	defer cc.Close()
	call, cancel := context.WithTimeout(ctx, signTimeout)
	defer cancel()
	chain, err := sign(call, cc, csr, s.o.TTL, s.o.Signer)
	if err != nil {
		return err
	}
	own, root, err := fromChain(chain, key)
	if err != nil {
		return err
	}
	st := &state{own: own, bundle: root.Validation.RootsPEM}
	left := time.Duration(float64(time.Until(own.Certificate.Leaf.NotAfter)) * s.grace())
	st.renew = own.Certificate.Leaf.NotAfter.Add(-left)
	return s.publish(ctx, st)
}

// grace is the share of the lifetime that is left when renewing, spread a little
// so that a fleet doesn't renew at once.
func (s *Source) grace() float64 {
	return min(max(s.o.Grace+s.o.Jitter*(2*rand.Float64()-1), 0), 1)
}

// load reads mounted files. A pair that doesn't fit is being replaced right now:
// the caller tries again.
func (s *Source) load(ctx context.Context) error {
	chain, err := os.ReadFile(s.o.Mounted.Chain)
	if err != nil {
		return fmt.Errorf("reading the certificate: %w", err)
	}
	key, err := os.ReadFile(s.o.Mounted.Key)
	if err != nil {
		return fmt.Errorf("reading the key: %w", err)
	}
	root, err := os.ReadFile(s.o.Mounted.Root)
	if err != nil {
		return fmt.Errorf("reading the root: %w", err)
	}
	st := &state{bundle: root, pair: hash(chain, key)}
	if before := s.current.Load(); before != nil && before.pair == st.pair {
		st.own = before.own
		return s.publish(ctx, st)
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err == nil {
		_, err = config.PEMBlocks(chain)
	}
	if err != nil {
		return fmt.Errorf("loading the certificate: %w", err)
	}
	st.own = ownSecret(&cert, chain)
	return s.publish(ctx, st)
}

// publish makes st current and sends what changed.
func (s *Source) publish(ctx context.Context, st *state) error {
	var crl []byte
	if s.o.CRLFile != "" {
		b, err := os.ReadFile(s.o.CRLFile)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("reading the revocation list: %w", err)
		}
		crl = b
	}
	bundle := st.bundle
	if s.o.ExtraPEM != nil {
		bundle = append(bytes.Clone(bundle), s.o.ExtraPEM()...)
	}
	before := s.current.Load()
	// Each second comes by here: what is the same isn't parsed again.
	if before != nil && before.root.Hash == hash(bundle, crl) {
		st.root = before.root
	} else if root, err := rootSecret(bundle, crl); err != nil {
		return err
	} else {
		st.root = root
	}
	s.current.Store(st)
	// The root goes first: a peer's new certificate may need it already.
	if before == nil || before.root != st.root {
		if !s.send(ctx, st.root) {
			return ctx.Err()
		}
	}
	if before == nil || before.own.Hash != st.own.Hash {
		if !s.send(ctx, st.own) {
			return ctx.Err()
		}
	}
	return nil
}

func (s *Source) send(ctx context.Context, x *config.Secret) bool {
	select {
	case s.out <- x:
		return true
	case <-ctx.Done():
		return false
	}
}

// until waits for the next renewal: the time of the certificate by the wall
// clock, or a change of a mounted file or of the revocation list.
func (s *Source) until(ctx context.Context) bool {
	st := s.current.Load()
	for sleep(ctx, look) {
		if s.o.Mounted != nil {
			if s.load(ctx) != nil {
				return true // the loop notes why and tries again
			}
			continue
		}
		if !time.Now().Round(0).Before(st.renew.Round(0)) {
			return true
		}
		if s.o.CRLFile != "" || s.o.ExtraPEM != nil {
			again := *st
			if err := s.publish(ctx, &again); err != nil {
				s.o.Logf("trust bundle: %v", err)
			}
		}
	}
	return false
}

// jitter spreads d over plus and minus 10 percent.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*rand.Float64()))
}

// sleep waits and says whether ctx still lives.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
