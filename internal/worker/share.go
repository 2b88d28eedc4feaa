package worker

import "time"

const (
	stageTime    = time.Millisecond // of a stage, where others wait
	stepsPerLook = 4                // between two looks at the clock
	readsPerTurn = 16               // of one socket
	readsInAll   = 64               // of the sockets of a turn, when each has more than one
)

// share is how a turn's time is divided. Its stages end when their time is over,
// and a socket is read less often the more of them there are.
type share struct {
	reads int   // of one socket
	steps int   // since the last look at the clock
	ends  int64 // when the stage's time is over; 0: not known yet
	over  bool
}

// divide sets how often each of n sockets is read in this turn.
func (s *share) divide(n int) {
	s.reads = readsPerTurn
	if n > readsInAll/readsPerTurn {
		s.reads = max(1, readsInAll/n)
	}
}

// begin starts a stage.
func (w *Worker) begin(stage string) {
	w.stage = stage
	w.share.ends, w.share.over = 0, false
}

// Late counts a step of the stage, a read or a connect or the like, and reports
// whether its time is over: who has much more to do then does it in a later turn.
func (w *Worker) Late() bool {
	s := &w.share
	if s.steps++; s.steps >= stepsPerLook {
		s.steps = 0
		now := int64(time.Since(w.base))
		if s.ends == 0 {
			s.ends = now + int64(stageTime)
		}
		s.over = now >= s.ends
	}
	return s.over
}

// leave keeps what a stage didn't come to, from list[i] on, before what is newer,
// and gives the place of the newer back.
func leave(list []*Conn, i int, newer []*Conn) (all, spare []*Conn) {
	left := append(list[:0], list[i:]...)
	clear(list[len(left):])
	all = append(left, newer...)
	clear(newer)
	return all, newer[:0]
}
