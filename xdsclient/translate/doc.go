// Package translate turns Envoy's configuration messages into the plain values
// of package config: one resource in, one value or an error out. It does no I/O
// but for the files that a resource names, knows no other resource, and is the
// only place besides its caller xdsclient where Envoy's messages are seen.
//
// An error names the field path of everything that is wrong and says why; the
// text becomes the NACK. What Envoy accepts is accepted unless it needs a
// feature the proxy lacks: then the message says "not supported yet". Unknown
// fields are fine; a known field that isn't implemented is refused if and only
// if leaving it out would change routing or security.
//
// registry.go lists every extension.
package translate
