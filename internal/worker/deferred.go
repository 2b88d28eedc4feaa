package worker

import "time"

// Deferred is a call at the end of a turn. It is intrusive: its owner embeds it
// and sets Run once.
type Deferred struct {
	Run    func()
	next   *Deferred
	queued bool
}

// deferredList is a queue of calls.
type deferredList struct {
	first, last *Deferred
	n           int
}

// push queues d, once.
func (l *deferredList) push(d *Deferred) {
	if d.queued {
		return
	}
	d.queued, d.next = true, nil
	if l.first == nil {
		l.first = d
	} else {
		l.last.next = d
	}
	l.last = d
	l.n++
}

func (l *deferredList) run() {
	d := l.first
	l.first = d.next
	l.n--
	d.queued, d.next = false, nil
	d.Run()
}

// Later runs d.Run at the end of this turn, before output is flushed. A second
// Later before that changes nothing.
func (w *Worker) Later(d *Deferred) { w.deferred.push(d) }

func (w *Worker) runDeferred() {
	for w.deferred.first != nil {
		w.deferred.run()
	}
}

// pieceTime is how long a turn takes up pieces of long work, the last one's excess apart.
const pieceTime = 500 * time.Microsecond

// Spare runs d.Run, a piece of long work, when the output of a turn is on its way:
// whatever is ready goes before it, and what a turn has no time for is left to
// the next. A piece is some hundred microseconds; a longer one isn't for a worker.
func (w *Worker) Spare(d *Deferred) { w.pieces.push(d) }

// Pieces is how many pieces of long work wait.
func (w *Worker) Pieces() int { return w.pieces.n }

func (w *Worker) runPieces() {
	if w.pieces.first == nil {
		return
	}
	w.begin("pieces")
	for end := w.now + int64(pieceTime); w.pieces.first != nil; {
		w.pieces.run()
		if w.tick(); w.now >= end {
			break
		}
	}
	w.begin("flush")
	w.flush()
}
