package jwt

import (
	"strings"

	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
)

// done takes the outcome.
func (k *check) done(s status) {
	k.over, k.result = true, s
	if k.parked && k.answer() == filter.Continue {
		k.x.Resume()
	}
}

func (k *check) answer() filter.Verdict {
	if k.result != ok {
		k.x.Stats.Inc(k.f.stats.denied)
		k.refuse()
		return filter.Stop
	}
	k.x.Stats.Inc(k.f.stats.allowed)
	if k.unsent != "" {
		text := "invalid header value for: " + k.unsent
		k.x.Reply(filter.Reply{Status: 503, Body: text, GRPC: -1, Flag: telemetry.DPE,
			Details: "filter_removed_required_request_headers{" + strings.ReplaceAll(text, " ", "_") + "}"})
		return filter.Stop
	}
	if k.reroute {
		k.x.ClearRoute()
	}
	return filter.Continue
}

func (k *check) refuse() {
	r := filter.Reply{Status: 401, Details: details(k.result.text()), GRPC: -1, Flag: telemetry.FlagNone}
	if k.result == badAudience {
		r.Status = 403
	}
	if !k.f.policy.StripFailure {
		r.Body = k.result.text()
		r.Headers = func(h *httpmsg.Head) {
			v := append(append([]byte(`Bearer realm="`), k.uri...), '"')
			if k.result != missing {
				v = append(v, `, error="invalid_token"`...)
			}
			h.AddName("www-authenticate", v)
		}
	}
	k.x.Reply(r)
}

func details(text string) string {
	return "jwt_authn_access_denied{" + strings.ReplaceAll(text, " ", "_") + "}"
}

// maxPath is how much of the path a refusal tells, Envoy's bound.
const maxPath = 256

// uri is what the client asked for.
func uri(h *httpmsg.Head) []byte {
	path, there := h.Value("x-envoy-original-path")
	if !there {
		path = h.Path()
	}
	u := append([]byte(nil), h.Get(httpmsg.XForwardedProto)...)
	u = append(append(u, "://"...), h.Authority()...)
	return append(u, path[:min(len(path), maxPath)]...)
}
