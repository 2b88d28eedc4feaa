package pool

import (
	"time"

	"sluice/internal/worker"
)

// Pinger sends a PING and tells of its acknowledgement; internal/h2's engines
// are some.
type Pinger interface{ SendPing(opaque uint64) }

// Keepalive sends PINGs on an HTTP/2 connection, of either side, and finds out
// when the peer is gone (connection_keepalive). It belongs to one worker.
type Keepalive struct {
	worker   *worker.Worker
	engine   Pinger
	interval time.Duration
	timeout  time.Duration
	expired  func()
	timer    worker.Timer
	sent     uint64 // the last PING's number
	waiting  bool   // for its acknowledgement
}

// Start begins with the first interval; expired is called, once, when a PING
// had no answer in time. The caller passes acknowledgements to Acked.
func (k *Keepalive) Start(w *worker.Worker, e Pinger, interval, timeout time.Duration, expired func()) {
	k.worker, k.engine, k.interval, k.timeout, k.expired = w, e, interval, timeout, expired
	k.timer.Fire = k.fire
	if interval > 0 {
		w.Start(&k.timer, interval)
	}
}

// Ping asks at once, if no question is open: before a request on a connection
// that was idle for long.
func (k *Keepalive) Ping() {
	if k.worker == nil || k.waiting {
		return
	}
	k.sent++
	k.waiting = true
	k.engine.SendPing(k.sent)
	k.worker.Start(&k.timer, k.timeout)
}

// Acked takes an acknowledgement.
func (k *Keepalive) Acked(opaque uint64) {
	if !k.waiting || opaque != k.sent {
		return
	}
	k.waiting = false
	if k.interval > 0 {
		k.worker.Start(&k.timer, k.interval)
	} else {
		k.worker.Stop(&k.timer)
	}
}

// Stop ends it.
func (k *Keepalive) Stop() {
	if k.worker != nil {
		k.worker.Stop(&k.timer)
		k.worker = nil
	}
}

func (k *Keepalive) fire() {
	if k.worker == nil {
		return
	}
	if !k.waiting {
		k.Ping()
		return
	}
	k.Stop()
	k.expired()
}
