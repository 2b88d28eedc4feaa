package worker

import (
	"math/bits"
	"time"
)

// The wheel has levels of 64 slots: 1 ms, 64 ms, 4.1 s, 4.4 min, 4.7 h and 12
// days wide. A timer sits in the level its distance fits and moves down when
// its slot comes up, so starting, stopping and firing cost the same however many there are.
const (
	wheelBits   = 6
	wheelSlots  = 1 << wheelBits
	wheelLevels = 6
	tickNanos   = int64(time.Millisecond)
)

// Timer is intrusive: its owner embeds it and sets Fire once. Fire runs on the
// worker, at most a tick (1 ms) and a turn late, never early.
type Timer struct {
	Fire       func()
	next, prev *Timer
	due        int64 // tick
	level      int8
	slot       int8
}

// Active reports whether the timer runs.
func (t *Timer) Active() bool { return t.next != nil }

type wheel struct {
	tick  int64 // everything before or at it has fired
	used  [wheelLevels]uint64
	heads [wheelLevels][wheelSlots]Timer
}

func (h *wheel) init() {
	for l := range h.heads {
		for s := range h.heads[l] {
			t := &h.heads[l][s]
			t.next, t.prev = t, t
		}
	}
}

// Start lets t fire after d; a running timer is started anew.
func (w *Worker) Start(t *Timer, d time.Duration) {
	if t.next != nil {
		w.wheel.remove(t)
	}
	t.due = max((w.now+int64(max(d, 0))+tickNanos-1)/tickNanos, w.wheel.tick+1)
	w.wheel.insert(t)
}

// Stop keeps t from firing; stopping one that doesn't run changes nothing.
func (w *Worker) Stop(t *Timer) {
	if t.next != nil {
		w.wheel.remove(t)
	}
}

func (h *wheel) insert(t *Timer) {
	level, shift := 0, 0
	for dist := uint64(t.due - h.tick); dist >= wheelSlots && level < wheelLevels-1; dist >>= wheelBits {
		level++
		shift += wheelBits
	}
	// In the top level a far timer may share a slot with a nearer round: cascading puts it back.
	slot := int(t.due>>shift) & (wheelSlots - 1)
	head := &h.heads[level][slot]
	t.level, t.slot = int8(level), int8(slot)
	t.prev, t.next = head.prev, head
	head.prev.next, head.prev = t, t
	h.used[level] |= 1 << slot
}

func (h *wheel) remove(t *Timer) {
	t.prev.next, t.next.prev = t.next, t.prev
	if head := &h.heads[t.level][t.slot]; head.next == head {
		h.used[t.level] &^= 1 << t.slot
	}
	t.next, t.prev = nil, nil
}

// nextTick is the first tick at which something fires or moves down; -1 if none.
func (h *wheel) nextTick() int64 {
	best := int64(-1)
	for level := range h.used {
		if h.used[level] == 0 {
			continue
		}
		shift := level * wheelBits
		cur := h.tick >> shift
		// The slot of the current position is a whole round away.
		turned := bits.RotateLeft64(h.used[level], -int((cur+1)&(wheelSlots-1)))
		at := (cur + 1 + int64(bits.TrailingZeros64(turned))) << shift
		if best < 0 || at < best {
			best = at
		}
	}
	return best
}

// next is when the wheel must be looked at, in worker nanoseconds; -1: never.
func (h *wheel) next() int64 {
	if t := h.nextTick(); t >= 0 {
		return t * tickNanos
	}
	return -1
}

// advance fires what is due at now, until late says so: then the rest comes
// first the next time. A Fire may start and stop any timer.
func (h *wheel) advance(now int64, late func() bool) {
	target := now / tickNanos
	for {
		at := h.nextTick()
		if at < 0 || at > target {
			break
		}
		h.tick = at
		h.cascade(at)
		if !h.fireSlot(int(at)&(wheelSlots-1), late) {
			h.tick = at - 1
			return
		}
	}
	h.tick = max(h.tick, target)
}

// cascade moves timers of the slots that begin at tick at to lower levels.
func (h *wheel) cascade(at int64) {
	for level := wheelLevels - 1; level > 0; level-- {
		shift := level * wheelBits
		if at&(1<<shift-1) != 0 {
			continue
		}
		slot := int(at>>shift) & (wheelSlots - 1)
		if h.used[level]&(1<<slot) == 0 {
			continue
		}
		var last *Timer
		head := &h.heads[level][slot]
		for last = head.prev; head.next != head; {
			t := head.next
			h.remove(t)
			h.insert(t)
			if t == last {
				break
			}
		}
	}
}

// fireSlot reports whether nothing of the slot is left.
func (h *wheel) fireSlot(slot int, late func() bool) bool {
	head := &h.heads[0][slot]
	for head.next != head {
		t := head.next
		if t.due > h.tick {
			break // started by a Fire just now for a whole round ahead
		}
		if late() {
			return false
		}
		h.remove(t)
		t.Fire()
	}
	return true
}
