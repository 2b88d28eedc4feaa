//go:build tools

// The programs that the tests build and run: the unmodified control plane, and
// the unmodified agent that starts the real Envoy.
package e2e

import (
	_ "istio.io/istio/pilot/cmd/pilot-agent"
	_ "istio.io/istio/pilot/cmd/pilot-discovery"
)
