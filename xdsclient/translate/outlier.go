package translate

import (
	"strconv"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	commonmatcher "github.com/envoyproxy/go-control-plane/envoy/config/common/matcher/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"sluice/internal/config"
)

// outlier fills in Envoy's defaults.
func (s scope) outlier(m *clusterv3.OutlierDetection) *config.Outlier {
	if m == nil {
		return nil
	}
	out := &config.Outlier{
		Consecutive5xx:      u32(m.GetConsecutive_5Xx(), 5),
		ConsecutiveGateway:  u32(m.GetConsecutiveGatewayFailure(), 5),
		ConsecutiveLocal:    u32(m.GetConsecutiveLocalOriginFailure(), 5),
		Enforce5xx:          u32(m.GetEnforcingConsecutive_5Xx(), 100),
		EnforceGateway:      u32(m.GetEnforcingConsecutiveGatewayFailure(), 0),
		EnforceLocal:        u32(m.GetEnforcingConsecutiveLocalOriginFailure(), 100),
		EnforceSuccessRate:  u32(m.GetEnforcingSuccessRate(), 100),
		EnforceFailure:      u32(m.GetEnforcingFailurePercentage(), 0),
		EnforceLocalSuccess: u32(m.GetEnforcingLocalOriginSuccessRate(), 100),
		EnforceLocalFailure: u32(m.GetEnforcingFailurePercentageLocalOrigin(), 0),
		Interval:            s.duration("interval", m.GetInterval(), 10*time.Second),
		BaseEjection:        s.duration("base_ejection_time", m.GetBaseEjectionTime(), 30*time.Second),
		MaxJitter:           s.duration("max_ejection_time_jitter", m.GetMaxEjectionTimeJitter(), 0),
		MaxEjectionPercent:  u32(m.GetMaxEjectionPercent(), 10),
		AlwaysEjectOne:      boolean(m.GetAlwaysEjectOneHost(), false),
		SplitLocal:          m.GetSplitExternalLocalOriginErrors(),
		SuccessMinHosts:     u32(m.GetSuccessRateMinimumHosts(), 5),
		SuccessVolume:       u32(m.GetSuccessRateRequestVolume(), 100),
		SuccessStdev:        u32(m.GetSuccessRateStdevFactor(), 1900),
		FailureThreshold:    u32(m.GetFailurePercentageThreshold(), 85),
		FailureMinHosts:     u32(m.GetFailurePercentageMinimumHosts(), 5),
		FailureVolume:       u32(m.GetFailurePercentageRequestVolume(), 50),
		SuccessfulActiveHC:  boolean(m.GetSuccessfulActiveHealthCheckUnejectHost(), true),
	}
	out.MaxEjection = s.duration("max_ejection_time", m.GetMaxEjectionTime(), max(300*time.Second, out.BaseEjection))
	if out.MaxEjection < out.BaseEjection {
		s.at("max_ejection_time").bad("max_ejection_time must be greater than or equal to base_ejection_time")
	}
	s.unsupported(len(m.GetMonitors()) > 0, "monitors", "outlier detection extensions")
	return out
}

// errorStatus converts the predicate that says which responses are errors:
// unions of :status matchers, which is what control planes write.
func (s scope) errorStatus(m *commonmatcher.MatchPredicate) [][2]int {
	switch x := m.GetRule().(type) {
	case *commonmatcher.MatchPredicate_OrMatch:
		var out [][2]int
		for i, r := range x.OrMatch.GetRules() {
			out = append(out, s.index("or_match.rules", i).errorStatus(r)...)
		}
		return out
	case *commonmatcher.MatchPredicate_HttpResponseHeadersMatch:
		var out [][2]int
		for i, h := range x.HttpResponseHeadersMatch.GetHeaders() {
			out = append(out, s.index("http_response_headers_match.headers", i).statusRange(h)...)
		}
		if len(out) > 1 {
			s.bad("not supported yet: more than one header of a response at once")
		}
		return out
	}
	s.bad("not supported yet: an error matcher other than :status")
	return nil
}

func (s scope) statusRange(h *route.HeaderMatcher) [][2]int {
	if h.GetName() != ":status" || h.GetInvertMatch() {
		s.bad("not supported yet: an error matcher other than :status")
		return nil
	}
	if r := h.GetRangeMatch(); r != nil {
		return [][2]int{{int(r.GetStart()), int(r.GetEnd())}}
	}
	code, err := strconv.Atoi(h.GetStringMatch().GetExact())
	if err != nil {
		s.bad("not supported yet: matching :status by anything but its value")
		return nil
	}
	return [][2]int{{code, code + 1}}
}
