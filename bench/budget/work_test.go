package budget

import (
	"testing"
	"time"

	"sluice/internal/worker"
)

// work is a row: something that is done again and again.
type work struct {
	name string
	// run does it n times and says how long our own part took.
	run func(n int) time.Duration
	// calls gives the system calls so far; nil: it makes none.
	calls func() worker.Calls
	// than is the row that this one is measured against: the figures are what it
	// costs beyond that; "": from zero. Such a row has no run.
	than, of string
}

// pure is work all of which is our own.
func pure(name string, once func()) *work {
	return &work{name: name, run: func(n int) time.Duration {
		began := time.Now()
		for range n {
			once()
		}
		return time.Since(began)
	}}
}

// beyond is what row of costs more than row than.
func beyond(name, of, than string) *work { return &work{name: name, of: of, than: than} }

// allWork is every row, in the order of traffic.
func allWork(t *testing.T) (all []*work) {
	all = append(all, sniffing(t)...)
	all = append(all, engines(t)...)
	all = append(all, records(t)...)
	all = append(all, parts(t)...)
	return append(all, paths(t)...)
}

func paths(t *testing.T) []*work {
	return []*work{
		copying(t).work("path/copy"),
		newHTTP1(t, "bare").work("path/http1/bare"),
		newHTTP1(t, "istio").work("path/http1/istio"),
		newGRPC(t, "bare").work("path/grpc/bare"),
		newGRPC(t, "istio").work("path/grpc/istio"),
		beyond("features/http1", "path/http1/istio", "path/http1/bare"),
		beyond("features/grpc", "path/grpc/istio", "path/grpc/bare"),
	}
}
