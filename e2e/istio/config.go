package e2e

import (
	"fmt"
	"strings"
)

// vips are the services' addresses.
func vip(name string) string {
	return map[string]string{"a": "10.96.0.11", "b": "10.96.0.12", "c": "10.96.0.13"}[name]
}

func podIP(name string) string {
	return map[string]string{"a": "10.244.0.11", "b": "10.244.0.21", "c": "10.244.0.31"}[name]
}

var servicesYAML = services()

// services are pods a, b and c, each a service with HTTP, gRPC, TCP, a TCP port
// whose server speaks first, and a port without a declared protocol.
func services() string {
	var b strings.Builder
	for _, n := range []string{"a", "b", "c"} {
		fmt.Fprintf(&b, `apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: demo}
spec:
  hosts: [%[1]s.demo.svc.cluster.local]
  addresses: [%[2]s]
  location: MESH_INTERNAL
  resolution: STATIC
  ports:
  - {number: 80, name: http, protocol: HTTP, targetPort: 8080}
  - {number: 7070, name: grpc, protocol: GRPC}
  - {number: 9000, name: tcp, protocol: TCP}
  - {number: 9001, name: tcp-first, protocol: TCP}
  workloadSelector: {labels: {app: %[1]s}}
---
apiVersion: networking.istio.io/v1
kind: WorkloadEntry
metadata: {name: %[1]s-v1, namespace: demo}
spec: {address: %[3]s, labels: {app: %[1]s, version: v1, security.istio.io/tlsMode: istio}, serviceAccount: %[1]s, locality: r1/z1}
---
`, n, vip(n), podIP(n))
	}
	return b.String()
}

const strictYAML = `apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: default, namespace: istio-system}
spec: {mtls: {mode: STRICT}}
`

// providersYAML has app c say who may come to others, and take their spans, in
// either language.
const providersYAML = `extensionProviders:
- name: authz-http
  envoyExtAuthzHttp: {service: c.demo.svc.cluster.local, port: 80, includeRequestHeadersInCheck: [x-ext-authz], headersToUpstreamOnAllow: [x-user]}
- name: authz-grpc
  envoyExtAuthzGrpc: {service: c.demo.svc.cluster.local, port: 7070}
- name: zipkin
  zipkin: {service: c.demo.svc.cluster.local, port: 80}
- name: otlp
  opentelemetry: {service: c.demo.svc.cluster.local, port: 7070}
`

// tracingYAML has the spans of a and b sent to a provider: those of c would be
// about spans.
const tracingYAML = `apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: a, namespace: demo}
spec:
  selector: {matchLabels: {app: a}}
  tracing: [{providers: [{name: %[1]s}], randomSamplingPercentage: 100, customTags: {who: {literal: {value: a}}}}]
---
apiVersion: telemetry.istio.io/v1
kind: Telemetry
metadata: {name: b, namespace: demo}
spec:
  selector: {matchLabels: {app: b}}
  tracing: [{providers: [{name: %[1]s}], randomSamplingPercentage: 100, customTags: {who: {literal: {value: b}}}}]
`

// customYAML has a provider asked for some requests to b.
const customYAML = `apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: b, namespace: demo}
spec:
  selector: {matchLabels: {app: b}}
  action: CUSTOM
  provider: {name: %s}
  rules: [{to: [{operation: {paths: ["/checked*"]}}]}]
`

// routesYAML: a header goes to c, a tenth of the rest too, one path has retries
// and another a timeout.
const routesYAML = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: b, namespace: demo}
spec:
  hosts: [b.demo.svc.cluster.local]
  http:
  - match: [{headers: {x-canary: {exact: "1"}}}]
    route: [{destination: {host: c.demo.svc.cluster.local, port: {number: 80}}}]
  - match: [{uri: {prefix: /slow}}]
    timeout: 1s
    retries: {attempts: 0}
    route: [{destination: {host: b.demo.svc.cluster.local, port: {number: 80}}}]
  - match: [{uri: {prefix: /retried}}]
    retries: {attempts: 2, retryOn: 5xx}
    route: [{destination: {host: b.demo.svc.cluster.local, port: {number: 80}}}]
  - route:
    - {destination: {host: b.demo.svc.cluster.local, port: {number: 80}}, weight: 50}
    - {destination: {host: c.demo.svc.cluster.local, port: {number: 80}}, weight: 50}
`

// timeoutYAML gives one path a timeout.
const timeoutYAML = `apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: b, namespace: demo}
spec:
  hosts: [b.demo.svc.cluster.local]
  http:
  - match: [{uri: {prefix: /slow}}]
    timeout: 1s
    retries: {attempts: 0}
    route: [{destination: {host: b.demo.svc.cluster.local, port: {number: 80}}}]
  - route: [{destination: {host: b.demo.svc.cluster.local, port: {number: 80}}}]
`
