// Package admin is what operators and the kubelet see of the proxy: readiness,
// probes, metrics and the administration pages. It reads the state of every
// other part and changes it only where a page says so (drain, quit, logging).
// It runs on ordinary goroutines and is never on the data path; cmd/proxy
// starts it.
package admin

import (
	"slices"
	"strings"
	"sync"
)

// Readiness is a set of conditions that must all hold once before the proxy is
// ready. It latches: once everything held, the proxy stays ready until Stop
// (Envoy's and pilot-agent's behaviour), so that a later outage of the control
// plane does not take the pod out of service. Safe for concurrent use.
type Readiness struct {
	mu      sync.Mutex
	waiting []condition
	ready   bool
	stopped bool
	onReady func()
}

type condition struct{ name, reason string }

// NewReadiness makes a set that waits for names, in the order in which they
// should be shown. onReady, which may be nil, runs once when all hold.
func NewReadiness(onReady func(), names ...string) *Readiness {
	r := &Readiness{onReady: onReady}
	for _, n := range names {
		r.waiting = append(r.waiting, condition{name: n})
	}
	r.ready = len(names) == 0
	return r
}

// Add makes it wait for one more; the proxy must not be ready yet.
func (r *Readiness) Add(name, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, condition{name, reason})
}

// Done says that a condition holds. Unknown and repeated names are ignored.
func (r *Readiness) Done(name string) {
	r.mu.Lock()
	r.waiting = slices.DeleteFunc(r.waiting, func(c condition) bool { return c.name == name })
	now := !r.ready && len(r.waiting) == 0
	r.ready = r.ready || now
	r.mu.Unlock()
	if now && r.onReady != nil {
		r.onReady()
	}
}

// Because records why a condition doesn't hold yet; the page shows it.
func (r *Readiness) Because(name, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.waiting {
		if r.waiting[i].name == name {
			r.waiting[i].reason = reason
		}
	}
}

// Stop ends readiness for good: the process is going away.
func (r *Readiness) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
}

// Ready reports whether traffic may come, and otherwise what is waited for, a
// line each.
func (r *Readiness) Ready() (bool, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return false, "the proxy is shutting down\n"
	}
	if r.ready {
		return true, ""
	}
	var b strings.Builder
	for _, c := range r.waiting {
		b.WriteString("waiting for " + c.name)
		if c.reason != "" {
			b.WriteString(": " + c.reason)
		}
		b.WriteByte('\n')
	}
	return false, b.String()
}
