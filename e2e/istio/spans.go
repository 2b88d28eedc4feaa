package e2e

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"

	"go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// span is what a collector was told, by either protocol.
type span struct {
	Trace  string `json:"traceId"`
	ID     string `json:"id"`
	Parent string `json:"parentId"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Tags   map[string]string
}

// spans is a collector of traces.
type spans struct {
	mu   sync.Mutex
	list []span
}

func (s *spans) add(list ...span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, list...)
}

func (s *spans) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = nil
}

func (s *spans) zipkin(body []byte) {
	var list []span
	if json.Unmarshal(body, &list) == nil {
		s.add(list...)
	}
}

// otlp serves every method that isn't known as TraceService's Export.
func (s *spans) otlp(_ any, stream grpc.ServerStream) error {
	m := &v1.TracesData{}
	if err := stream.RecvMsg(m); err != nil {
		return err
	}
	for _, r := range m.GetResourceSpans() {
		for _, scope := range r.GetScopeSpans() {
			for _, x := range scope.GetSpans() {
				s.add(ofOTLP(x))
			}
		}
	}
	return stream.SendMsg(&v1.TracesData{})
}

func ofOTLP(x *v1.Span) span {
	out := span{Trace: hex.EncodeToString(x.GetTraceId()), ID: hex.EncodeToString(x.GetSpanId()), Parent: hex.EncodeToString(x.GetParentSpanId()),
		Kind: x.GetKind().String(), Name: x.GetName(), Tags: map[string]string{}}
	for _, a := range x.GetAttributes() {
		out.Tags[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return out
}

// linked looks for a client's span of a and a server's span of b below it.
func (s *spans) linked() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	const operation = "b.demo.svc.cluster.local:80/*"
	for _, up := range s.list {
		for _, down := range s.list {
			if up.Trace == down.Trace && up.ID == down.Parent && up.Parent == "" && up.Tags["who"] == "a" && down.Tags["who"] == "b" &&
				up.Name == operation && down.Name == operation && up.Tags["istio.namespace"] == "demo" && down.Tags["http.status_code"] == "200" {
				return nil
			}
		}
	}
	return fmt.Errorf("among %d spans: %+v", len(s.list), s.list[:min(len(s.list), 2)])
}
