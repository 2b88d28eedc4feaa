package listener

import (
	"context"
	"time"

	"sluice/internal/config"
	"sluice/internal/worker"
	"sluice/listener/downstream"
)

// drain tells every connection of the chain to let its client go, and closes
// those that are left after d.
func (c *chain) drain(w *worker.Worker, how *downstream.Drain, d time.Duration) {
	c.beginDrain(how)
	c.drainFor = max(d, time.Millisecond)
	c.startDrainTimer(w)
}

func (c *chain) beginDrain(how *downstream.Drain) {
	if c.draining != nil {
		return
	}
	c.draining = how
	for x := c.first; x != nil; {
		next := x.next
		x.tellDrain()
		x = next
	}
}

// drainOf is a drain that begins now.
func (l *Listeners) drainOf(w *worker.Worker) *downstream.Drain {
	d := &downstream.Drain{From: w.Now()}
	if l.opts.Gradual {
		d.Over = l.opts.DrainTime
	}
	return d
}

// startDrainTimer is also for connections that were still being looked at when
// draining began.
func (c *chain) startDrainTimer(w *worker.Worker) {
	if c.open == 0 || c.timer.Active() {
		return
	}
	c.timer.Fire = c.drainEnd
	w.Start(&c.timer, c.drainFor)
}

func (c *chain) drainEnd() {
	c.ended = true
	for x := c.first; x != nil; {
		next := x.next
		if x.Drainer != nil {
			x.Drainer.EndDrain()
		} else {
			x.Conn.CloseWhenFlushed()
		}
		x = next
	}
}

func (c *conn) tellDrain() {
	if c.Drain != nil {
		return
	}
	c.Drain = c.chain.draining
	if d := c.Drainer; d != nil {
		d.BeginDrain()
	}
}

// link and unlink keep the chain's list of live connections.
func (c *chain) link(x *conn) {
	if x.next = c.first; c.first != nil {
		c.first.prev = x
	}
	c.first = x
	c.open++
}

func (c *chain) unlink(x *conn) {
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		c.first = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	}
	x.prev, x.next = nil, nil
	c.open--
}

// Drain tells all connections, or those of inbound listeners, to let their
// clients go. New connections are accepted still, and told at once. Nothing is
// closed: Close does that.
func (l *Listeners) Drain(ctx context.Context, inboundOnly bool) error {
	return l.each(ctx, func(o *onWorker, _ int) {
		for _, a := range o.byName {
			if inboundOnly && a.config.Direction != config.Inbound {
				continue
			}
			for _, c := range a.chains {
				c.beginDrain(l.drainOf(o.w))
			}
		}
	})
}

// stopping says which listeners open no sockets any more.
type stopping uint8

const (
	stopNone stopping = iota
	stopInbound
	stopAll
)

func (l *Listeners) stops(c *config.Listener) bool {
	return l.stopping == stopAll || l.stopping == stopInbound && c.Direction == config.Inbound
}

// Close closes the listening sockets of all listeners, or of inbound ones;
// connections go on. It counts as stopped those that weren't.
func (l *Listeners) Close(ctx context.Context, inboundOnly bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopping = max(l.stopping, stopInbound)
	if !inboundOnly {
		l.stopping = stopAll
	}
	for _, p := range l.current {
		if !p.stopped && l.stops(p.config) {
			p.stopped = true
			l.stats.Stopped++
		}
	}
	return l.each(ctx, func(o *onWorker, _ int) {
		for _, a := range o.byName {
			if l.stops(a.config) {
				a.closeSockets()
			}
		}
	})
}

// Open is the number of connections that terminals hold or that are on their
// way there, over all workers.
func (l *Listeners) Open(ctx context.Context) (int, error) {
	counts := make([]int, len(l.perW))
	err := l.each(ctx, func(o *onWorker, i int) { counts[i] = int(o.live) })
	n := 0
	for _, c := range counts {
		n += c
	}
	return n, err
}

// Visit runs f on every worker with each listener's counters there.
func (l *Listeners) Visit(ctx context.Context, f func(worker int, c *config.Listener, n Counters)) error {
	return l.each(ctx, func(o *onWorker, i int) {
		for _, a := range o.byName {
			f(i, a.config, a.copyOf(i))
		}
	})
}
