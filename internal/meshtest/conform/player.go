package conform

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const defaultHost = "svc.test"

// errLimit ends a case whose time is over.
var errLimit = errors.New("time limit")

// player plays the steps of a case, one after the other.
type player struct {
	ctx      context.Context
	ports    map[string]int
	folder   string
	backends map[string]*backend
	proxy    *process
	ads      *ads
	deadline time.Time
	work     sync.WaitGroup

	mu         sync.Mutex
	conns      map[string]conn
	background map[string]*side
}

// conn is an open connection: a wire, or HTTP/2 on one.
type conn struct {
	wire *wire
	h2   *h2Conn
}

func (c conn) closeBy(how string) {
	if c.h2 != nil {
		c.h2.closeBy(how)
		return
	}
	c.wire.closeBy(how)
}

// side is a step on a goroutine of its own.
type side struct {
	done  chan struct{}
	value any
	err   error
}

func (p *player) aside(play func() (any, error)) *side {
	s := &side{done: make(chan struct{})}
	p.work.Go(func() {
		s.value, s.err = play()
		close(s.done)
	})
	return s
}

func (s *side) result(deadline time.Time) (any, error) {
	t := time.NewTimer(left(deadline))
	defer t.Stop()
	select {
	case <-s.done:
		return s.value, s.err
	case <-t.C:
		return nil, errLimit
	}
}

// close closes the connections and waits for what still plays.
func (p *player) close() {
	p.mu.Lock()
	for _, c := range p.conns {
		c.closeBy("fin")
	}
	p.mu.Unlock()
	p.work.Wait()
	for _, c := range p.conns {
		if c.h2 != nil {
			c.h2.work.Wait()
		}
	}
}

// play is one step and gives its entry of the outcome.
func (p *player) play(s *step) (any, error) {
	if left(p.deadline) == 0 {
		return nil, errLimit
	}
	if s.Bg != "" {
		inner := *s
		inner.Bg = ""
		started := p.aside(func() (any, error) { return p.play(&inner) })
		p.mu.Lock()
		p.background[s.Bg] = started
		p.mu.Unlock()
		return nil, nil
	}
	if s.Repeat > 0 {
		return p.repeated(s)
	}
	began := time.Now()
	out, err := p.do(s)
	if err != nil {
		return nil, err
	}
	return finished(s, out, time.Since(began)), nil
}

// do plays the step's kind.
func (p *player) do(s *step) (any, error) {
	switch {
	case s.HTTP != nil:
		return entry(p.http(s.HTTP))
	case s.Open != nil:
		return entry(p.open(s.Open), nil)
	case s.Send != nil:
		return entry(p.send(s.Send))
	case s.Recv != nil:
		return entry(p.recv(s.Recv))
	case s.Close != nil:
		return nil, p.closeConn(s.Close)
	case s.H2 != nil:
		return entry(p.sendFrames(s.H2))
	case s.TCP != nil:
		return entry(p.tcp(s.TCP))
	case s.Parallel != nil:
		return p.parallel(s.Parallel)
	case s.Join != nil:
		return p.join(*s.Join)
	}
	return entry(p.doAround(s))
}

// entry keeps a step that has nothing to tell a plain nil.
func entry(out object, err error) (any, error) {
	if out == nil || err != nil {
		return nil, err
	}
	return out, nil
}

func (p *player) parallel(steps []step) (any, error) {
	sides := make([]*side, len(steps))
	for i := range steps {
		sides[i] = p.aside(func() (any, error) { return p.play(&steps[i]) })
	}
	out := make([]any, len(steps))
	for i, s := range sides {
		var err error
		if out[i], err = s.result(p.deadline); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (p *player) join(name string) (any, error) {
	p.mu.Lock()
	s := p.background[name]
	delete(p.background, name)
	p.mu.Unlock()
	if s == nil {
		return nil, fmt.Errorf("join: no step %s in the background", name)
	}
	return s.result(p.deadline)
}

// finished applies what stands around a step to its result.
func finished(s *step, result any, took time.Duration) any {
	out, isObject := result.(object)
	if len(s.TookMS) == 2 {
		out, isObject = maps.Clone(out), true
		if out == nil {
			out = object{}
		}
		ms := float64(took) / float64(time.Millisecond)
		out["took"] = fmt.Sprintf("%.0f ms", ms)
		if s.TookMS[0] <= ms && ms <= s.TookMS[1] {
			out["took"] = fmt.Sprintf("%v..%v ms", s.TookMS[0], s.TookMS[1])
		}
	}
	if !isObject {
		return result
	}
	if end := out["end"]; s.LooseEnd && (end == "fin" || end == "rst" || out["tls_error"] == "CLOSED") {
		delete(out, "tls_error")
		out["end"] = "closed"
	}
	if s.Keep != nil {
		maps.DeleteFunc(out, func(k string, _ any) bool { return k != "took" && !slices.Contains(s.Keep, k) })
	}
	for _, k := range s.Drop {
		delete(out, k)
	}
	return out
}

// repeated plays a step N times and gives only the counts of its results.
func (p *player) repeated(s *step) (any, error) {
	inner := *s
	inner.Repeat = 0
	if s.HTTP != nil && s.HTTP.PeekS == nil {
		request, zero := *s.HTTP, 0.0
		request.PeekS, inner.HTTP = &zero, &request
	}
	by := s.By
	if by == nil {
		by = []string{"status", "body"}
	}
	counts := map[string]int{}
	for range s.Repeat {
		result, err := p.play(&inner)
		if err != nil {
			return nil, err
		}
		out, _ := result.(object)
		keys := make([]string, len(by))
		for i, field := range by {
			keys[i] = countKey(out, field)
		}
		counts[strings.Join(keys, " ")]++
	}
	shown := object{}
	for key, n := range counts {
		shown[key] = n
	}
	for key, low := range s.Spread {
		if low[0] <= counts[key] && counts[key] <= low[1] {
			shown[key] = fmt.Sprintf("%d..%d", low[0], low[1])
		}
	}
	return object{"counts": shown}, nil
}

// countKey is a field of a result, or a header as headers.NAME.
func countKey(out object, field string) string {
	name, header, _ := strings.Cut(field, ".")
	value := out[name]
	if list, ok := value.([]any); ok && header != "" {
		var found []string
		for _, p := range list {
			if kv := p.([]any); kv[0] == header {
				found = append(found, kv[1].(string))
			}
		}
		return strings.Join(found, ",")
	}
	if value == nil {
		return "-"
	}
	if s, ok := value.(string); ok {
		return s
	}
	return dumped(value)
}

// within is the deadline of a step that may take so many seconds.
func within(s *float64, otherwise float64) time.Time {
	if s != nil {
		otherwise = *s
	}
	return after(seconds(otherwise))
}

func (p *player) until(s *float64) time.Time { return earlier(p.deadline, within(s, 5)) }

func (p *player) sleep(d time.Duration) { pause(p.ctx, min(d, left(p.deadline))) }
