package listener

import (
	"slices"
	"time"

	"sluice/internal/config"
)

// Stats are what has become of listeners, as listener_manager.* counts it.
type Stats struct {
	// CreateSuccess and CreateFailure count each listener once a worker; Stopped
	// those whose sockets were closed by a drain.
	CreateSuccess, CreateFailure, Stopped uint64
	// Draining and DrainingChains are how many replaced or removed listeners, and
	// filter chains of listeners changed in place, have drain time left.
	Draining, DrainingChains uint64
}

// departure is what an Apply began to drain.
type departure struct {
	listener bool
	chains   int
	until    time.Time
}

// Stats is safe to call from any goroutine.
func (l *Listeners) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetDrained()
	out := l.stats
	for _, x := range l.departing {
		if x.listener {
			out.Draining++
		}
		out.DrainingChains += uint64(x.chains)
	}
	return out
}

func (l *Listeners) leaves(x departure) {
	if x.listener || x.chains > 0 {
		l.forgetDrained()
		x.until = time.Now().Add(l.opts.DrainTime)
		l.departing = append(l.departing, x)
	}
}

func (l *Listeners) forgetDrained() {
	now := time.Now()
	l.departing = slices.DeleteFunc(l.departing, func(x departure) bool { return now.After(x.until) })
}

// replaced says what drains when a listener takes another's place: the whole of
// it, or with everything but chains alike those that are gone.
func replaced(before, after *config.Listener, sameFrame bool) departure {
	if !sameFrame {
		return departure{listener: true}
	}
	kept := map[uint64]bool{}
	for _, c := range after.Chains {
		kept[c.Hash] = true
	}
	n := 0
	for _, c := range before.Chains {
		if !kept[c.Hash] {
			n++
		}
	}
	if d := before.DefaultChain; d != nil && (after.DefaultChain == nil || after.DefaultChain.Hash != d.Hash) {
		n++
	}
	return departure{chains: n}
}

// Names lists the running listeners in the order they came.
func (l *Listeners) Names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.order)
}
