package translate

import (
	"bytes"
	"reflect"
	"slices"
	"sync"

	"sluice/internal/config"
)

// alike finds values that a mesh repeats: its clusters have names of their own
// and settings from a few hands.
type alike struct {
	clusters recent[config.ClusterOptions]
	tls      recent[config.TLSParams]
	peers    recent[config.Validation]
	sockets  recent[config.SocketMatch]
	retries  recent[config.RetryPolicy]
}

// recent holds the values seen last. Who shares a value doesn't change it.
type recent[T any] struct {
	mu     sync.Mutex
	same   func(a, b *T) bool // sooner says that they are equal than reflection does; may be nil
	values [16]*T             // the newest first
}

// share gives an equal value seen not long ago, or v itself.
func (r *recent[T]) share(v *T) *T {
	if v == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, old := range r.values {
		if old != nil && (r.same != nil && r.same(old, v) || reflect.DeepEqual(old, v)) {
			copy(r.values[1:i+1], r.values[:i])
			r.values[0] = old
			return old
		}
	}
	copy(r.values[1:], r.values[:len(r.values)-1])
	r.values[0] = v
	return v
}

func newAlike() *alike {
	a := &alike{}
	a.tls.same, a.peers.same = sameTLS, samePeer
	return a
}

// sameTLS and samePeer look at pointers only: what they call different may be
// equal.
func sameTLS(a, b *config.TLSParams) bool {
	return a.Min == b.Min && a.Max == b.Max && slices.Equal(a.Ciphers, b.Ciphers) && slices.Equal(a.Curves, b.Curves) &&
		slices.EqualFunc(a.EqualCiphers, b.EqualCiphers, slices.Equal) && slices.Equal(a.ALPN, b.ALPN) &&
		slices.Equal(a.Certificates, b.Certificates) && a.Validation == b.Validation && a.Tickets == b.Tickets
}

func samePeer(a, b *config.Validation) bool {
	return a.Ref == b.Ref && a.Roots == b.Roots && bytes.Equal(a.RootsPEM, b.RootsPEM) && a.RootsPath == b.RootsPath &&
		a.SystemRoots == b.SystemRoots && slices.Equal(a.SANs, b.SANs) && slices.Equal(a.SPKI, b.SPKI) &&
		slices.Equal(a.CertHashes, b.CertHashes) && slices.Equal(a.CRLs, b.CRLs) && a.CRLLeafOnly == b.CRLLeafOnly &&
		a.AcceptUntrust == b.AcceptUntrust && a.AllowExpired == b.AllowExpired && a.MaxDepth == b.MaxDepth && a.HasTrustAnchor == b.HasTrustAnchor
}
