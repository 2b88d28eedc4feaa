package httpproxy

import (
	"strconv"
	"strings"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/route"
	"sluice/upstream/balance"
)

// finalHeaders makes a response's head what the client is told.
func (r *request) finalHeaders() {
	h, m := &r.resp, r.proxy.config
	if r.upgrade && h.Has(httpmsg.Upgrade) && hasToken(h.Get(httpmsg.Connection), "upgrade") {
		if !h.Has(httpmsg.ContentLength) && !h.Has(httpmsg.TransferEncoding) && h.Status >= 200 {
			h.SetString(httpmsg.ContentLength, "0")
		}
	} else {
		h.Del(httpmsg.Connection)
		h.Del(httpmsg.Upgrade)
	}
	h.Del(httpmsg.TransferEncoding)
	h.Del(httpmsg.KeepAlive)
	h.Del(httpmsg.ProxyConnection)
	if m.AlwaysSetRequestID {
		if id := r.head.Get(httpmsg.XRequestID); len(id) > 0 {
			h.Set(httpmsg.XRequestID, id)
		}
	}
	for _, c := range r.newCookies {
		h.AddString(httpmsg.SetCookie, c)
	}
	if len(r.proxy.via) > 0 {
		h.AppendComma(httpmsg.Via, r.proxy.via)
	}
	if !h.Has(httpmsg.Date) {
		h.AddID(httpmsg.Date, r.local.dateNow())
	}
	switch m.ServerHeader {
	case config.ServerOverwrite:
		h.Set(httpmsg.Server, r.proxy.name)
	case config.ServerAppendIfAbsent:
		if !h.Has(httpmsg.Server) {
			h.AddID(httpmsg.Server, r.proxy.name)
		}
	}
	if m.Router.SuppressEnvoyHeaders {
		h.Del(httpmsg.XEnvoyUpstreamServiceTime)
	}
	r.decorateResponse()
}

// operation is the decorator's operation where tracing is on, and whether
// traffic leaves here.
func (r *request) operation() (op string, on, outbound bool) {
	if r.proxy.config.Tracing == nil || r.route == nil {
		return "", false, false
	}
	outbound = r.proxy.listener != nil && r.proxy.listener.Direction == config.Outbound
	if c := r.route.Config; !c.DecoratorNoProp {
		op = c.Decorator
	}
	return op, true, outbound
}

// decorateRequest tells the next hop the operation where traffic leaves, and
// takes in what the hop before told where it arrives.
func (r *request) decorateRequest() {
	op, on, outbound := r.operation()
	switch {
	case !on:
	case outbound && op != "":
		r.head.SetString(httpmsg.XEnvoyDecoratorOperation, op)
	case !outbound:
		r.overridden = r.head.Has(httpmsg.XEnvoyDecoratorOperation)
		r.nameSpan(&r.head)
		r.head.Del(httpmsg.XEnvoyDecoratorOperation)
	}
}

// decorateResponse is the same on the way back.
func (r *request) decorateResponse() {
	op, on, outbound := r.operation()
	switch {
	case !on:
	case outbound:
		r.nameSpan(&r.resp)
		r.resp.Del(httpmsg.XEnvoyDecoratorOperation)
	case op != "" && !r.overridden:
		r.resp.SetString(httpmsg.XEnvoyDecoratorOperation, op)
	}
}

// continueHTTP2 answers an expectation on HTTP/2, as the HTTP/1 engine does on
// its own.
func (r *request) continueHTTP2() {
	if !r.down.HTTP2() || r.proxy.config.Proxy100Continue || !equalFold(r.head.Get(httpmsg.Expect), "100-continue") {
		return
	}
	r.head.Del(httpmsg.Expect)
	r.resp.Status = 100
	r.down.SendHead(&r.resp, false)
	r.resp.Reset()
}

// upgradable refuses upgrades that aren't configured.
func (r *request) upgradable() bool {
	if r.connect && len(r.head.Protocol()) == 0 {
		if r.route == nil {
			return true
		}
		return r.admit("connect")
	}
	if !r.upgrade {
		return true
	}
	return r.admit(strings.ToLower(string(r.head.Get(httpmsg.Upgrade))))
}

// admit counts an upgrade that is allowed, and refuses another; what follows
// a refused one may be meant for the tunnel, so the connection takes no more
// requests.
func (r *request) admit(kind string) bool {
	v := r.group.Values
	if r.allows(kind) {
		r.upgrading = true
		v[cxUpgradesTotal]++
		v[cxUpgradesActive]++
		return true
	}
	v[rqWSOnNonWS]++
	if r.conn.h2 != nil {
		r.conn.leave()
	}
	return r.refuse(403, "", "upgrade_failed")
}

// allows asks the route, then the connection manager, about an upgrade.
func (r *request) allows(kind string) bool {
	if a := r.action(); a != nil {
		for _, u := range a.Upgrades {
			if strings.EqualFold(u.Type, kind) {
				return u.Enabled
			}
		}
	}
	for _, u := range r.proxy.config.Upgrades {
		if strings.EqualFold(u.Type, kind) {
			return u.Enabled
		}
	}
	return false
}

// hash computes the request's hash by the route's policies.
func (r *request) hash(a *config.RouteAction) {
	for i := range a.HashPolicies {
		p := &a.HashPolicies[i]
		v, ok := r.hashOne(p)
		if ok {
			r.hashed = r.hashed<<1 | r.hashed>>63
			r.hashed ^= v
			r.hasHash = true
		}
		if p.Terminal && r.hasHash {
			return
		}
	}
}

func (r *request) hashOne(p *config.HashPolicy) (uint64, bool) {
	switch p.Kind {
	case config.HashHeader:
		v, ok := telemetry.Header(&r.head, p.Name)
		if !ok {
			return 0, false
		}
		if p.Rewrite != nil {
			v = p.Rewrite.Regex.ReplaceAll(v, []byte(p.Rewrite.Substitution))
		}
		return balance.Hash64(v, 0), true
	case config.HashSourceIP:
		if !r.rec.Remote.IsValid() {
			return 0, false
		}
		r.local.bufC = r.rec.Remote.Addr().Unmap().AppendTo(r.local.bufC[:0])
		return balance.Hash64(r.local.bufC, 0), true
	case config.HashQuery:
		_, query, _ := strings.Cut(string(r.head.Path()), "?")
		for part := range strings.SplitSeq(query, "&") {
			if k, v, _ := strings.Cut(part, "="); k == p.Name {
				return balance.Hash64([]byte(v), 0), true
			}
		}
	case config.HashFilterState:
		if v, ok := r.rec.FilterState[p.Name]; ok {
			return balance.Hash64([]byte(v), 0), true
		}
	case config.HashCookie:
		return r.hashCookie(p)
	}
	return 0, false
}

// hashCookie hashes a cookie, and makes one for the client where it has none
// and the policy has a TTL.
func (r *request) hashCookie(p *config.HashPolicy) (uint64, bool) {
	if v, ok := route.Cookie(&r.head, p.Name); ok {
		return balance.Hash64(v, 0), true
	}
	if p.TTL == nil {
		return 0, false
	}
	d := r.conn.down
	text := d.Src.String() + d.Dst.String() + r.facts.Listener
	sum := balance.Hash64([]byte(text), 0)
	value := hexText(sum)
	r.newCookies = append(r.newCookies, setCookie(p, value))
	return balance.Hash64([]byte(value), 0), true
}

func setCookie(p *config.HashPolicy, value string) string {
	s := p.Name + `="` + value + `"`
	if sec := int(p.TTL.Seconds()); sec > 0 {
		s += "; Max-Age=" + strconv.Itoa(sec)
	}
	if p.Path != "" {
		s += "; Path=" + p.Path
	}
	for _, a := range p.Attrs {
		s += "; " + a.Name
		if a.Value != "" {
			s += "=" + a.Value
		}
	}
	return s + "; HttpOnly"
}

func hexText(v uint64) string {
	const digits = "0123456789abcdef"
	var b [16]byte
	i := len(b)
	for {
		i--
		b[i] = digits[v&15]
		if v >>= 4; v == 0 {
			return string(b[i:])
		}
	}
}
