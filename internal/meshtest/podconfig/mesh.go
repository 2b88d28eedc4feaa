// Package podconfig writes the configuration that Istio's control plane sends to
// a sidecar, for a small mesh given as Go values: virtual listeners, inbound
// chains by mTLS mode, outbound listeners, routes, clusters and endpoints with
// Istio's own names, filters and order. The embedded control plane of the demo
// and of tests serves it. It is no replacement for istiod: the end-to-end tests
// run the real one.
//
// Resources are built as JSON documents in protojson's form, because that is how
// an operator sees them in a config dump.
package podconfig

import (
	"fmt"
	"strconv"
	"time"
)

// Protocol is what a service port speaks, as its name or appProtocol declares.
type Protocol string

// The protocols.
const (
	HTTP  Protocol = "http"
	HTTP2 Protocol = "http2" // gRPC too
	TCP   Protocol = "tcp"
	TLS   Protocol = "tls"  // the application's own TLS, passed through
	Auto  Protocol = "auto" // not declared: sniffed
)

// Port is one port of a service.
type Port struct {
	Number, Target int
	Protocol       Protocol
}

// Workload is one pod behind a service.
type Workload struct {
	Name, IP string
	// Plain marks a pod without a sidecar: callers send it no mTLS.
	Plain bool
}

// Service is a service of the mesh; its workloads run as service account
// Account, or Name when that is empty.
type Service struct {
	Name, VIP string
	Account   string
	Ports     []Port
	Workloads []Workload
	// What a VirtualService would say.
	Timeout time.Duration
	Retries int // attempts on 5xx besides Istio's default conditions; 0: the default policy
}

// Mesh is a whole mesh in one namespace.
type Mesh struct {
	Namespace string
	Services  []Service
	Strict    bool   // PeerAuthentication STRICT instead of PERMISSIVE
	AccessLog string // path; "": none
	LogFormat string // "": Istio's default
}

// doc is a JSON object.
type doc = map[string]any

// Resources are one pod's resources by kind, each a protojson document.
type Resources struct{ Clusters, Endpoints, Listeners, Routes []map[string]any }

const (
	typeURL     = "type.googleapis.com/"
	unlimited   = 4294967295
	trustDomain = "cluster.local"
)

func (m *Mesh) host(s *Service) string { return s.Name + "." + m.Namespace + ".svc.cluster.local" }

func (m *Mesh) spiffe(s *Service) string {
	account := s.Account
	if account == "" {
		account = s.Name
	}
	return "spiffe://" + trustDomain + "/ns/" + m.Namespace + "/sa/" + account
}

func outbound(port int, host string) string { return fmt.Sprintf("outbound|%d||%s", port, host) }

func inbound(port int) string { return "inbound|" + strconv.Itoa(port) + "||" }

// For gives the resources of the pod with address ip.
func (m *Mesh) For(ip string) Resources {
	var r Resources
	m.clusters(&r, ip)
	m.outbound(&r)
	r.Listeners = append(r.Listeners, m.virtualOutbound(), m.virtualInbound(ip))
	return r
}

// own is the service that the pod with address ip belongs to, nil for a client.
func (m *Mesh) own(ip string) *Service {
	for i := range m.Services {
		for _, w := range m.Services[i].Workloads {
			if w.IP == ip {
				return &m.Services[i]
			}
		}
	}
	return nil
}

func typed(url string, fields doc) doc {
	d := doc{"@type": typeURL + url}
	for k, v := range fields {
		d[k] = v
	}
	return d
}

func named(name, url string, fields doc) doc {
	return doc{"name": name, "typed_config": typed(url, fields)}
}

// struct1 is a filter that Istio sends as a TypedStruct.
func struct1(name, url string, value doc) doc {
	return named(name, "udpa.type.v1.TypedStruct", doc{"type_url": typeURL + url, "value": value})
}

func address(ip string, port int) doc {
	return doc{"socket_address": doc{"address": ip, "port_value": port}}
}
