package jwt

import (
	"slices"
	"strings"
	"sync/atomic"

	"sluice/internal/config"
)

// provider is one issuer's policy, and where its tokens are.
type provider struct {
	*config.JWTProvider
	places    *places
	audiences []string               // sanitized
	fetched   atomic.Pointer[keySet] // by any worker
}

func newProvider(p *config.JWTProvider) *provider {
	return &provider{JWTProvider: p, places: placesOf([]config.JWTProvider{*p}), audiences: bareAll(p.Audiences)}
}

// claims checks what a token says, before its signature: that is the costly part. A
// token without an expiration doesn't expire, unless it must.
func (p *provider) claims(t *token, now uint64, audiences []string) status {
	if audiences == nil {
		audiences = p.audiences
	}
	switch {
	case now+p.ClockSkew < t.notBefore:
		return notYetValid
	case t.expires > 0 && now > t.expires && now-t.expires > p.ClockSkew:
		return expired
	case !addressed(t.audiences, audiences):
		return badAudience
	case p.Subject != nil && !p.Subject.Match(t.subject), !p.lifetime(t, now):
		return unverified
	}
	return ok
}

func (p *provider) lifetime(t *token, now uint64) bool {
	if t.expires == 0 {
		return !p.RequireExpiration && p.MaxLifetime == nil
	}
	return p.MaxLifetime == nil || t.expires < now || t.expires-now <= uint64(p.MaxLifetime.Seconds())
}

// addressed reports whether a token is for one of the audiences; none: for anybody.
func addressed(token, audiences []string) bool {
	return len(audiences) == 0 || slices.ContainsFunc(token, func(a string) bool { return slices.Contains(audiences, bare(a)) })
}

// bare is an audience without scheme and final slash: issuers don't agree on
// them.
func bare(audience string) string {
	s := audience
	if rest, found := strings.CutPrefix(s, "https://"); found {
		s = rest
	} else if rest, found := strings.CutPrefix(s, "http://"); found {
		s = rest
	}
	return strings.TrimSuffix(s, "/")
}

func bareAll(in []string) []string {
	var out []string
	for _, a := range in {
		out = append(out, bare(a))
	}
	return out
}
