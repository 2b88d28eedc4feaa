package jwt

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
)

// metadataKey is where payloads go in dynamic metadata.
const metadataKey = "envoy.filters.http.jwt_authn"

// check is the look at one request.
type check struct {
	f       *Filter
	x       *filter.Exchange
	uri     []byte // as it came: removing a token changes it
	parked  bool
	over    bool
	result  status
	reroute bool
	unsent  string // a header whose value can't be sent
	cancel  func() // the fetch under way; nil: none
}

// token checks one token.
func (k *check) token(n *node, at found, done func(status)) {
	p := n.provider
	if p != nil {
		k.x.Stats.Inc(k.f.stats.cacheMiss)
	}
	t, s := parse(at.text)
	if s == ok && !at.place.allows(t.issuer) {
		s = unknownIssuer
	}
	if s == ok && p == nil {
		if p = k.f.issuedBy(t.issuer); p == nil {
			s = unknownIssuer
		}
	}
	if s == ok {
		s = p.claims(t, k.now(), n.audiences)
	}
	if s != ok {
		k.failed(p, s)
		done(s)
		return
	}
	k.keys(p, func(keys []config.JWK, s status) {
		if s == ok {
			s = verify(t, keys)
		}
		if s == ok {
			k.good(at, t, p)
		} else {
			k.failed(p, s)
		}
		done(s)
	})
}

// now is when the request came: the clock of all that is said of it.
func (k *check) now() uint64 { return uint64(max(0, k.x.Record.Wall.Unix())) }

// failed tells later filters and logs why a provider's token is no good.
func (k *check) failed(p *provider, s status) {
	if p != nil && p.FailureKey != "" {
		k.x.Record.Dynamic.Set(metadataKey, p.FailureKey, config.Struct{"code": float64(s), "message": s.text()})
	}
}

// good gives what a verified token says to the upstream and to later filters.
func (k *check) good(at found, t *token, p *provider) {
	if p.PayloadHeader != "" {
		v := t.encoded
		if p.PadPayload {
			v = strings.TrimRight(v, "=")
			v += strings.Repeat("=", -len(v)&3)
		}
		k.x.Request.AddName(p.PayloadHeader, []byte(v))
	}
	for i := range p.Claims {
		k.claim(t, &p.Claims[i])
	}
	if !p.Forward {
		at.place.remove(k.x.Request)
	}
	if p.HeaderKey != "" {
		k.x.Record.Dynamic.Set(metadataKey, p.HeaderKey, t.header)
	}
	if p.PayloadKey != "" {
		split(t.payload, p.SpaceDelimited)
		k.x.Record.Dynamic.Set(metadataKey, p.PayloadKey, t.payload)
	}
	k.reroute = k.reroute || p.ClearRoute
}

// split turns claims that are lists in one string into lists.
func split(payload config.Struct, names []string) {
	for _, n := range names {
		words, _ := payload[n].(string)
		var list config.List
		for w := range strings.SplitSeq(words, " ") {
			if w != "" {
				list = append(list, w)
			}
		}
		if list != nil {
			payload[n] = list
		}
	}
}

// claim writes a claim to its header.
func (k *check) claim(t *token, c *config.ClaimHeader) {
	var v config.Value = t.payload
	for _, name := range c.Path {
		s, _ := v.(config.Struct)
		v = s[name]
	}
	text := headerText(v)
	switch {
	case text == "":
	case !httpmsg.IsValue(text):
		k.unsent = c.Header
	default:
		k.x.Request.AddName(c.Header, []byte(text))
	}
}

// headerText is a claim as a header's value, Envoy's way; "" for none.
func headerText(v config.Value) string {
	switch v := v.(type) {
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case float64:
		if v >= 0 && v < 1<<64 && v == math.Trunc(v) {
			return strconv.FormatUint(uint64(v), 10)
		}
		return strconv.FormatFloat(v, 'f', 6, 64)
	case config.List, config.Struct:
		return base64.StdEncoding.EncodeToString(telemetry.AppendValue(nil, v))
	}
	return ""
}
