package upstream

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"sluice/internal/config"
	"sluice/internal/telemetry"
)

// outlier is the outlier detection of one cluster. Workers count errors with
// atomics; only when a threshold is reached do they take the lock.
type outlier struct {
	config *config.Outlier
	mu     sync.Mutex
	hosts  []*hostState
	active int
	due    time.Time

	detected, enforced             [numDetectors]atomic.Uint64
	total, overflow, activeEjected atomic.Uint64
}

type ejection struct {
	since, back time.Time
	until       time.Duration
	times       int
}

type detector uint8

const (
	by5xx detector = iota
	byGateway
	byLocal
	bySuccessRate
	byFailurePercent
	numDetectors
)

func (d detector) String() string {
	return [...]string{"consecutive_5xx", "consecutive_gateway_failure", "consecutive_local_origin_failure", "success_rate",
		"failure_percentage"}[d]
}

// Outcome is what became of one use of a host.
type Outcome uint8

// The outcomes. Connected is the moment when a request got its connection.
const (
	Connected Outcome = iota
	LocalFailure
	LocalTimeout
	RequestFailed // TCP, or a protocol without codes
	RequestDone
)

// Report tells outlier detection about one use of h.
func (h *Host) Report(o Outcome) {
	x := h.cluster.shared.outlier
	if x == nil {
		return
	}
	if x.config.SplitLocal {
		switch o {
		case Connected, RequestDone:
			h.state.health.local.Store(0)
		case LocalFailure, LocalTimeout:
			h.count(x, byLocal, &h.state.health.local, x.config.ConsecutiveLocal)
		case RequestFailed:
			h.ReportCode(500)
		}
		return
	}
	switch o {
	case LocalFailure:
		h.ReportCode(503)
	case LocalTimeout:
		h.ReportCode(504)
	case RequestFailed:
		h.ReportCode(500)
	case RequestDone:
		h.ReportCode(200)
	}
}

// ReportCode tells outlier detection the status of an answer.
func (h *Host) ReportCode(code int) {
	x := h.cluster.shared.outlier
	if x == nil {
		return
	}
	s := h.state.health
	s.total.Add(1)
	if !x.isError(code) {
		s.success.Add(1)
		s.fiveXX.Store(0)
		s.gateway.Store(0)
		return
	}
	if code >= 502 && code <= 504 {
		h.count(x, byGateway, &s.gateway, x.config.ConsecutiveGateway)
	} else {
		s.gateway.Store(0)
	}
	h.count(x, by5xx, &s.fiveXX, x.config.Consecutive5xx)
}

func (x *outlier) isError(code int) bool {
	if len(x.config.ErrorStatus) == 0 {
		return code >= 500 && code < 600
	}
	for _, r := range x.config.ErrorStatus {
		if code >= r[0] && code < r[1] {
			return true
		}
	}
	return false
}

func (h *Host) count(x *outlier, d detector, n *atomic.Uint32, limit uint32) {
	if n.Add(1) == limit && limit > 0 {
		n.Store(0)
		h.cluster.local.all.eject(h.cluster.shared, h.state, d, h.cluster)
	}
}

func (x *outlier) enforcing(d detector) uint32 {
	switch d {
	case by5xx:
		return x.config.Enforce5xx
	case byGateway:
		return x.config.EnforceGateway
	case byLocal:
		return x.config.EnforceLocal
	case bySuccessRate:
		return x.config.EnforceSuccessRate
	}
	return x.config.EnforceFailure
}

// eject takes a host out, if enforcement and the maximum allow. on is the
// calling worker's part of the cluster, which learns it at once.
func (c *Clusters) eject(sh *shared, s *hostState, d detector, on *Cluster) {
	x := sh.outlier
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.health.ejected.Load() {
		return
	}
	x.detected[d].Add(1)
	if rand.Uint32N(100) >= x.enforcing(d) {
		return
	}
	share := 100 * float64(x.active+1) / float64(max(1, len(x.hosts)))
	if share > float64(x.config.MaxEjectionPercent) && !(x.config.AlwaysEjectOne && x.active == 0) {
		x.overflow.Add(1)
		return
	}
	e := &s.health.out
	e.times++
	e.since = time.Now()
	e.until = min(x.config.BaseEjection*time.Duration(e.times), max(x.config.BaseEjection, x.config.MaxEjection))
	if j := x.config.MaxJitter; j > 0 {
		e.until += time.Duration(rand.Int64N(int64(j)))
	}
	s.health.ejected.Store(true)
	x.active++
	x.activeEjected.Store(uint64(x.active))
	x.enforced[d].Add(1)
	x.total.Add(1)
	c.tell(sh, s, true, on)
}

// tell spreads a change of a host's health to the workers.
func (c *Clusters) tell(sh *shared, s *hostState, out bool, on *Cluster) {
	if on != nil {
		on.ejected(s, out)
	}
	name := sh.name
	for _, l := range c.locals {
		if on != nil && l == on.local {
			continue
		}
		l.worker.Post(func() {
			if k := l.clusters[name]; k != nil && k.shared == sh {
				k.ejected(s, out)
			}
		})
	}
}

// follow makes hosts the ones that count; an ejected host that is gone no longer
// fills the maximum.
func (x *outlier) follow(hosts []*hostState) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.hosts, x.active = hosts, 0
	for _, h := range hosts {
		if h.health.ejected.Load() {
			x.active++
		}
	}
	x.activeEjected.Store(uint64(x.active))
}

// sweep brings hosts back whose time is over, and judges the rates of the last
// interval. It says when the next sweep is due.
func (c *Clusters) sweep(sh *shared, now time.Time) time.Duration {
	x := sh.outlier
	every := x.config.Interval
	if every <= 0 {
		every = 10 * time.Second
	}
	if now.Before(x.due) {
		return x.due.Sub(now)
	}
	x.due = now.Add(every)
	x.mu.Lock()
	var back []*hostState
	for _, h := range x.hosts {
		e := &h.health.out
		switch {
		case h.health.ejected.Load():
			if now.Sub(e.since) >= e.until {
				e.back = now
				h.health.fiveXX.Store(0)
				h.health.gateway.Store(0)
				h.health.local.Store(0)
				h.health.ejected.Store(false)
				x.active--
				back = append(back, h)
			}
		case e.times > 0 && now.Sub(e.back) >= every:
			e.times--
		}
	}
	x.activeEjected.Store(uint64(max(0, x.active)))
	x.mu.Unlock()
	for _, h := range back {
		c.tell(sh, h, false, nil)
	}
	for _, r := range x.rates() {
		c.eject(sh, r.host, r.by, nil)
	}
	return every
}

func (x *outlier) emit(emit func(string, uint64, telemetry.Kind)) {
	const p = "outlier_detection."
	emit(p+"ejections_active", x.activeEjected.Load(), telemetry.Gauge)
	emit(p+"ejections_total", x.total.Load(), telemetry.Counter)
	emit(p+"ejections_consecutive_5xx", x.enforced[by5xx].Load(), telemetry.Counter)
	emit(p+"ejections_enforced_total", x.total.Load(), telemetry.Counter)
	emit(p+"ejections_overflow", x.overflow.Load(), telemetry.Counter)
	for d := by5xx; d < numDetectors; d++ {
		emit(p+"ejections_detected_"+d.String(), x.detected[d].Load(), telemetry.Counter)
		emit(p+"ejections_enforced_"+d.String(), x.enforced[d].Load(), telemetry.Counter)
	}
}
