// Package conform plays conformance cases recorded from Envoy 1.40 against a
// proxy binary: one case is a bootstrap, scripted upstreams, scripted client
// steps and what could be seen from outside when Envoy ran them. Its tests play
// every case against our proxy, and a part of them against the real Envoy, which
// proves the runner itself.
//
// The parts, in the order a case meets them: casefile and yaml (reading),
// schema (the words a case may use), ports and pki (what it runs with), backend*
// (upstreams), ads* (the control plane), process (the proxy), player* (the
// client's steps), wire, tls*, h1* and h2* (bytes), mask and compare (the
// verdict), run (one case from start to end).
//
// It drives sockets by hand instead of net/http because cases speak of what an
// HTTP library hides: where a connection ends and how, single frames, broken
// bytes. Only tests use it; the product never links it.
package conform
