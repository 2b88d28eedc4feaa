package stat

import "fmt"

// Conditions are what surrounded a cell: shares of its length, except Lag. None
// of them says how the contestant did, so that a rule on them is blind to the
// result.
type Conditions struct {
	Seconds    float64 // length
	LagP99     float64 // microseconds the client sent later than it meant, with a slot free
	Client     float64 // share of core 0 the client used
	Origin     float64 // share of core 0 the back end used
	Core0      float64 // share of core 0 that anything used
	Foreign0   float64 // share of core 0 that neither client nor back end used
	Foreign1   float64 // share of core 1 that isn't the proxy's
	Steal      float64 // share of both cores that the hypervisor kept
	OpenLoop   bool    // a rate was to be kept
	Accounted  bool    // Foreign0 and Foreign1 are known
	ProxyAlone bool    // nobody of ours but the proxy is on core 1
}

// Bounds are where a cell stops counting.
type Bounds struct {
	LagP99  float64 // microseconds, with a rate
	Busy    float64 // share of core 0, with a rate
	Foreign float64 // share of a core
	Steal   float64
}

// DefaultBounds are those of a machine that has nothing else to do.
func DefaultBounds() Bounds { return Bounds{LagP99: 1000, Busy: .85, Foreign: .04, Steal: .02} }

// Void gives the reason why a cell doesn't count, "" when it does.
func Void(c Conditions, b Bounds) string {
	switch {
	case c.OpenLoop && c.LagP99 > b.LagP99:
		return fmt.Sprintf("the client was %.0f µs late (bound %.0f)", c.LagP99, b.LagP99)
	case c.OpenLoop && c.Core0 > b.Busy:
		return fmt.Sprintf("core 0 was %.0f %% busy at a fixed rate (bound %.0f %%)", c.Core0*100, b.Busy*100)
	case c.Accounted && c.ProxyAlone && c.Foreign1 > b.Foreign:
		return fmt.Sprintf("others used %.1f %% of the proxy's core (bound %.1f %%)", c.Foreign1*100, b.Foreign*100)
	case c.Accounted && c.Foreign0 > 2*b.Foreign:
		return fmt.Sprintf("others used %.1f %% of the client's core (bound %.1f %%)", c.Foreign0*100, 2*b.Foreign*100)
	case c.Steal > b.Steal:
		return fmt.Sprintf("the hypervisor kept %.1f %% (bound %.1f %%)", c.Steal*100, b.Steal*100)
	}
	return ""
}

// ClientBound says that a closed loop measured the client: core 0 was full, so
// that throughput and latency are its own; CPU per unit is still the proxy's.
func ClientBound(c Conditions, proxyShare float64) bool {
	return !c.OpenLoop && c.Core0 > .95 && proxyShare < .95
}
