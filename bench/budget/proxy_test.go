package budget

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/telemetry"
	"sluice/internal/worker"
	"sluice/listener/downstream"
	"sluice/listener/filter"
	"sluice/listener/filter/chain"
	"sluice/listener/httpproxy"
	"sluice/upstream"
	"sluice/xdsclient/translate"
)

// bootstrap translates testdata/NAME.yaml, whose clusters lead to the origin.
func bootstrap(t *testing.T, name, socket string) *config.Bootstrap {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	b, err := translate.Default().Bootstrap([]byte(strings.ReplaceAll(string(text), "ORIGIN", socket)))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newProxy is a path through a connection manager as cmd/proxy wires it. extra is
// a filter before all others; nil: none.
func newProxy(t *testing.T, name string, extra filter.HTTP) *path {
	t.Helper()
	p := newPath(t)
	socket := fmt.Sprintf("@sluice-budget-%d-%p", os.Getpid(), p)
	var err error
	if p.listen, err = worker.OpenListener(netip.AddrPort{}, socket, worker.SocketOptions{}); err != nil {
		t.Fatal(err)
	}
	b := bootstrap(t, name, socket)
	p.set = telemetry.NewSet()
	workers, sets := []*worker.Worker{p.w}, []*telemetry.Set{p.set}
	p.files = telemetry.NewFiles(1, time.Hour, &p.log, io.Discard)
	clusters := upstream.New(upstream.Options{Workers: workers, Sets: sets})
	filters := &chain.Builder{Node: telemetry.NewNode(&b.Node, nil), Workers: 1, Cluster: b.Node.Cluster}
	server := httpproxy.New(httpproxy.Options{Workers: workers, Sets: sets, Clusters: clusters, Files: p.files, Filters: before(extra, filters.Build)})
	p.await(func() error { return clusters.Apply(t.Context(), &b.Static) })
	l := b.Static.Listeners[0]
	terminal, err := server.Build(l.Chains[0].Filters[0].(*config.HTTPConnectionManager), l)
	if err != nil {
		t.Fatal(err)
	}
	c := &downstream.Connection{Listener: l, Chain: l.Chains[0], ID: 1, Src: netip.MustParseAddrPort("10.244.1.12:41234"),
		Dst: netip.MustParseAddrPort("10.96.0.12:80"), Start: p.w.Now(), Began: p.w.Wall().UnixNano()}
	c.Conn, p.client = p.pair(nobody{})
	terminal.Serve(c)
	return p
}

// last keeps what was written to it last.
type last struct{ b []byte }

func (l *last) Write(b []byte) (int, error) { l.b = append(l.b[:0], b...); return len(b), nil }

type build = func(*config.HTTPFilter, *config.HTTPConnectionManager, *config.Listener) (filter.HTTP, error)

// before puts a filter where cors is, which has nothing to do.
func before(extra filter.HTTP, b build) build {
	return func(f *config.HTTPFilter, m *config.HTTPConnectionManager, l *config.Listener) (filter.HTTP, error) {
		if _, ok := f.Policy.(*config.CORS); ok && extra != nil {
			return extra, nil
		}
		return b(f, m, l)
	}
}
