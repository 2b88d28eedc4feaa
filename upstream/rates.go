package upstream

import "math"

type verdict struct {
	host *hostState
	by   detector
}

// rates judges the last interval: hosts whose success rate lies too far below
// the mean, and hosts with too large a share of failures. The counts start
// anew.
func (x *outlier) rates() (out []verdict) {
	type rate struct {
		host  *hostState
		share float64
	}
	var known, volume []rate
	cfg := x.config
	for _, h := range x.hosts {
		total, good := h.health.total.Swap(0), h.health.success.Swap(0)
		if total == 0 || h.health.ejected.Load() {
			continue
		}
		r := rate{h, 100 * float64(good) / float64(total)}
		if total >= cfg.SuccessVolume {
			known = append(known, r)
		}
		if total >= cfg.FailureVolume {
			volume = append(volume, r)
		}
	}
	if cfg.EnforceSuccessRate > 0 && cfg.SuccessMinHosts > 0 && len(known) >= int(cfg.SuccessMinHosts) {
		mean, dev := 0.0, 0.0
		for _, r := range known {
			mean += r.share / float64(len(known))
		}
		for _, r := range known {
			dev += (r.share - mean) * (r.share - mean) / float64(len(known))
		}
		limit := mean - math.Sqrt(dev)*float64(cfg.SuccessStdev)/1000
		for _, r := range known {
			if r.share < limit {
				out = append(out, verdict{r.host, bySuccessRate})
			}
		}
	}
	if cfg.EnforceFailure > 0 && cfg.FailureThreshold > 0 && len(volume) >= int(cfg.FailureMinHosts) {
		for _, r := range volume {
			if 100-r.share >= float64(cfg.FailureThreshold) {
				out = append(out, verdict{r.host, byFailurePercent})
			}
		}
	}
	return out
}
