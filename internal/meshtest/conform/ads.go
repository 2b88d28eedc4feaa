package conform

import (
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
)

// verdictKey is a push of one type.
type verdictKey struct{ short, version string }

// state is what was pushed of one type.
type adsState struct {
	version   string
	resources []pushed
	unasked   bool   // sent whole, whatever the proxy asked for
	salt      string // delta: makes an unchanged resource a new version
}

// ads is an ADS server by script, state-of-the-world and delta. Every
// subscription, ACK and NACK is recorded.
type ads struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	port      int
	keepOrder bool
	work      sync.WaitGroup

	mu       monitor
	state    map[string]*adsState
	records  map[string][]any
	verdicts map[verdictKey]string
	streams  []*adsStream
	order    []any
	node     any
	pushes   int
	server   *grpc.Server
}

// newADS starts the server on its port, unless the case starts without.
func newADS(spec *adsSpec, port int) (*ads, error) {
	a := &ads{port: port, keepOrder: spec.Order, state: map[string]*adsState{}, records: map[string][]any{}, verdicts: map[verdictKey]string{}}
	if spec.Up != nil && !*spec.Up {
		return a, nil
	}
	return a, a.up()
}

func (a *ads) up() error {
	l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, a.port))
	if err != nil {
		return fmt.Errorf("starting the ADS server: %w", err)
	}
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, a)
	a.mu.Lock()
	a.server = server
	a.mu.Unlock()
	a.work.Go(func() { _ = server.Serve(l) })
	return nil
}

// down ends the streams and the server.
func (a *ads) down() {
	a.disconnect()
	a.mu.Lock()
	server := a.server
	a.server = nil
	a.mu.Unlock()
	if server != nil {
		server.Stop()
	}
	a.work.Wait()
}

func (a *ads) disconnect() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.streams {
		s.put(nil)
	}
}

// step plays an ads step.
func (a *ads) step(s *adsStep, deadline time.Time) (object, error) {
	switch {
	case s.Push != nil:
		return a.push(s, deadline)
	case s.Do == "disconnect":
		a.disconnect()
	case s.Do == "down":
		a.down()
	case s.Do == "up":
		return nil, a.up()
	case s.Wait != "":
		return a.waitFor(s.Wait, max(1, s.Times), earlier(deadline, within(s.WithinS, 5))), nil
	default:
		return nil, fmt.Errorf("ads: push, wait or do: disconnect, down, up")
	}
	return nil, nil
}

// push sets the whole state of the named types and sends it; it gives the
// proxy's verdict on each.
func (a *ads) push(s *adsStep, deadline time.Time) (object, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pushes++
	version := textOr(s.Version, fmt.Sprint(a.pushes))
	var shorts []string
	for _, k := range s.Push {
		shorts = append(shorts, resourceKinds[k.kind].short)
	}
	// An ACK on its way to what was sent before would be one too few or too many.
	a.mu.await(earlier(deadline, after(time.Second)), func() bool {
		return !slices.ContainsFunc(a.streams, func(s *adsStream) bool { return s.owesAny(shorts) })
	})
	for _, k := range s.Push {
		kind := resourceKinds[k.kind]
		state := &adsState{version: version, unasked: s.Unasked}
		if old := a.state[kind.short]; old != nil {
			state.salt = old.salt
		}
		if s.Resend {
			state.salt = version
		}
		for _, body := range k.bodies {
			r, err := pushedOf(kind.message, body)
			if err != nil {
				return nil, fmt.Errorf("ads: push: %w", err)
			}
			state.resources = append(state.resources, r)
		}
		a.state[kind.short] = state
		delete(a.verdicts, verdictKey{kind.short, version})
	}
	for _, stream := range a.streams {
		for _, short := range shorts {
			stream.send(short, nil)
		}
	}
	if s.Wait == "false" {
		return nil, nil
	}
	a.mu.await(earlier(deadline, within(s.WithinS, 3)), func() bool {
		return !slices.ContainsFunc(shorts, func(short string) bool { return a.verdicts[verdictKey{short, version}] == "" })
	})
	out := object{}
	for _, short := range shorts {
		out[short] = textOr(a.verdicts[verdictKey{short, version}], "none")
	}
	return out, nil
}

// waitFor waits until the proxy subscribed to a type so many times.
func (a *ads) waitFor(short string, times int, until time.Time) object {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok := a.mu.await(until, func() bool {
		n := 0
		for _, r := range a.records[short] {
			if _, is := r.(object)["subscribe"]; is {
				n++
			}
		}
		return n >= times
	})
	return object{"ok": ok}
}

// record keeps what the proxy said; what names it in the order of all types.
func (a *ads) record(short, what string, entry object) {
	a.records[short] = append(a.records[short], entry)
	a.order = append(a.order, short+" "+what)
	a.mu.notify()
}

// noteNode keeps the id of the first node and that one was sent.
func (a *ads) noteNode(id string) {
	if a.node == nil || a.node == "" {
		a.node = id
	}
	a.order = append(a.order, "node")
}

// seen is everything the proxy said.
func (a *ads) seen() object {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := object{"node": a.node}
	for short, entries := range a.records {
		out[short] = slices.Clone(entries)
	}
	if a.keepOrder {
		out["order"] = slices.Clone(a.order)
	}
	return out
}

func sortedNames(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return out
}

func listOf(names []string) []any {
	out := make([]any, len(names))
	for i, n := range names {
		out[i] = n
	}
	return out
}
