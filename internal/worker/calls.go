package worker

// Calls are the system calls of a worker. A request's share of them is most of
// its cost, so the feature budget (bench/budget) holds it to a number. Others are those
// of a connection's beginning and end: none belongs to a request.
type Calls struct{ Waits, Reads, Writes, Splices, Others uint64 }

// Calls gives the counts so far.
func (w *Worker) Calls() Calls { return w.calls }
