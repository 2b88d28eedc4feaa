package xdsclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	status "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
)

// openTimeout bounds the way to an open stream: connection, handshake, headers.
const openTimeout = 10 * time.Second

// queued bounds the requests that wait to be written. A peer that doesn't read
// as many as that is taken for dead.
const queued = 4096

// Dialer opens a connection to the control plane. Its error's text is shown.
type Dialer func(ctx context.Context) (*grpc.ClientConn, error)

// answer is a response of either form. full says that it is a whole state.
type answer struct {
	url, version, nonce string
	full                bool
	resources           []received
	removed             []string
}

type received struct {
	name, version string // of the incremental form
	body          *anypb.Any
}

// request is a request of either form; stream turns it into the one in use.
type request struct {
	url                    string
	node                   *core.Node
	version, nonce         string
	names                  []string // all subscribed
	subscribe, unsubscribe []string
	initial                map[string]string
	failure                *status.Status
}

// conn is one open stream.
type conn struct {
	out    chan request
	cancel context.CancelFunc
	once   sync.Once
	// greeted: the node has been sent. Only the owner's goroutine looks.
	greeted bool
}

func (c *conn) close() { c.once.Do(c.cancel) }

// send queues a request, and gives the stream up when its queue is full.
func (c *conn) send(r request) {
	select {
	case c.out <- r:
	default:
		c.close()
	}
}

// stream is the gRPC stream in either form.
type stream interface {
	send(request) error
	receive() (*answer, error)
}

// connect opens a stream in the background and reports as events.
func (c *Client) connect(ctx context.Context) {
	gen := c.gen
	c.wg.Go(func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		err := c.serve(ctx, cancel, gen)
		if err == nil || errors.Is(err, io.EOF) {
			err = errors.New("closed by the control plane")
		}
		c.tell(event{gen: gen, closed: err})
	})
}

// tell hands an event to the owner unless Run has ended. The stream's own
// context doesn't count: its end is news.
func (c *Client) tell(e event) {
	select {
	case c.events <- e:
	case <-c.quit:
	}
}

func (c *Client) serve(ctx context.Context, cancel context.CancelFunc, gen int) error {
	cc, err := c.opts.Dial(ctx)
	if err != nil {
		return fmt.Errorf("dialing: %w", err)
	}
	defer cc.Close()
	slow := time.AfterFunc(openTimeout, cancel)
	s, err := c.open(ctx, cc)
	if !slow.Stop() && err != nil {
		return fmt.Errorf("opening a stream: no answer in %v", openTimeout)
	}
	if err != nil {
		return err
	}
	out := &conn{out: make(chan request, queued), cancel: cancel}
	c.tell(event{gen: gen, opened: out})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { writeAll(ctx, cancel, s, out.out) })
	for {
		a, err := s.receive()
		if err != nil {
			return err
		}
		c.tell(event{gen: gen, answer: a})
	}
}

func writeAll(ctx context.Context, cancel context.CancelFunc, s stream, out <-chan request) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-out:
			if s.send(r) != nil {
				cancel() // the reader gets the reason
				return
			}
		}
	}
}

func (c *Client) open(ctx context.Context, cc *grpc.ClientConn) (stream, error) {
	client := discovery.NewAggregatedDiscoveryServiceClient(cc)
	big := grpc.MaxCallRecvMsgSize(1<<31 - 1) // a mesh's whole state is one message
	if c.opts.ADS.Delta {
		s, err := client.DeltaAggregatedResources(ctx, big)
		return deltaStream{s}, err
	}
	s, err := client.StreamAggregatedResources(ctx, big)
	return wholeStream{s}, err
}

// wholeStream is the state-of-the-world form.
type wholeStream struct {
	s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
}

func (w wholeStream) send(r request) error {
	return w.s.Send(&discovery.DiscoveryRequest{
		TypeUrl: r.url, Node: r.node, VersionInfo: r.version, ResponseNonce: r.nonce,
		ResourceNames: r.names, ErrorDetail: r.failure,
	})
}

func (w wholeStream) receive() (*answer, error) {
	m, err := w.s.Recv()
	if err != nil {
		return nil, err
	}
	a := &answer{url: m.GetTypeUrl(), version: m.GetVersionInfo(), nonce: m.GetNonce(), full: true}
	for _, r := range m.GetResources() {
		if r.GetTypeUrl() == resourceWrapper {
			var w discovery.Resource
			if r.UnmarshalTo(&w) == nil {
				a.resources = append(a.resources, received{name: w.GetName(), body: w.GetResource()})
				continue
			}
		}
		a.resources = append(a.resources, received{body: r})
	}
	return a, nil
}

// resourceWrapper may enclose a resource in the state-of-the-world form too.
const resourceWrapper = "type.googleapis.com/envoy.service.discovery.v3.Resource"

// deltaStream is the incremental form.
type deltaStream struct {
	s discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
}

func (d deltaStream) send(r request) error {
	return d.s.Send(&discovery.DeltaDiscoveryRequest{
		TypeUrl: r.url, Node: r.node, ResponseNonce: r.nonce, ErrorDetail: r.failure,
		ResourceNamesSubscribe: r.subscribe, ResourceNamesUnsubscribe: r.unsubscribe, InitialResourceVersions: r.initial,
	})
}

func (d deltaStream) receive() (*answer, error) {
	m, err := d.s.Recv()
	if err != nil {
		return nil, err
	}
	a := &answer{url: m.GetTypeUrl(), version: m.GetSystemVersionInfo(), nonce: m.GetNonce(), removed: m.GetRemovedResources()}
	for _, r := range m.GetResources() {
		a.resources = append(a.resources, received{name: r.GetName(), version: r.GetVersion(), body: r.GetResource()})
	}
	return a, nil
}
