package httpproxy

import (
	"bytes"
	"encoding/pem"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/listener/route"
)

// valid refuses requests that can't be routed safely.
func (r *request) valid() bool {
	h := &r.head
	if !h.HasAuthority() || h.Has(httpmsg.Connection) && !r.down.HTTP2() && hasToken(h.Get(httpmsg.Connection), "host") {
		return r.refuse(400, "", "missing_host_header")
	}
	p := h.Path()
	if len(p) == 0 && !r.connect {
		return r.refuse(404, "", "missing_path_rejected")
	}
	if i := bytes.IndexByte(p, '#'); i >= 0 && r.proxy.server.opts.StripFragments {
		p = p[:i]
		h.SetPath(p)
	} else if i >= 0 {
		r.group.Values[rqFailedPath]++
		return r.refuse(400, "", "path_normalization_failed")
	}
	if len(p) > 0 && p[0] != '/' && !(r.connect && len(h.Protocol()) == 0) {
		r.group.Values[rqNonRelative]++
		return r.refuse(404, "", "absolute_path_rejected")
	}
	return true
}

func (r *request) refuse(status int, body, details string) bool {
	r.reply(filter.Reply{Status: status, Body: body, Details: details, GRPC: -1})
	return false
}

// canonical brings path and host into the form that everything after sees.
func (r *request) canonical() bool {
	switch r.normalizePath() {
	case pathRefused:
		r.group.Values[rqFailedPath]++
		return r.refuse(400, "", "path_normalization_failed")
	case pathRedirect:
		r.group.Values[rqRedirectedPath]++
		r.reply(filter.Reply{Status: 307, Details: "path_normalization_failed", GRPC: -1,
			Headers: func(h *httpmsg.Head) { h.Set(httpmsg.Location, r.head.Path()) }})
		return false
	}
	r.stripHost()
	return true
}

// stripHost takes port and trailing dot off the authority where configured.
func (r *request) stripHost() {
	m := r.proxy.config
	a := r.head.Authority()
	bare := route.StripPort(a)
	port := a[len(bare):]
	changed := false
	switch {
	case len(port) == 0:
	case m.StripPort == config.StripPortAny,
		m.StripPort == config.StripPortMatching && string(port[1:]) == r.localPort():
		port, changed = nil, true
	}
	if m.StripTrailingDot && len(bare) > 1 && bare[len(bare)-1] == '.' {
		bare, changed = bare[:len(bare)-1], true
	}
	if changed {
		r.local.bufC = append(append(r.local.bufC[:0], bare...), port...)
		r.head.SetAuthority(r.local.bufC)
	}
}

func (r *request) localPort() string {
	d := r.conn.down
	p := d.Dst.Port()
	if p == 0 {
		p = d.Port
	}
	return strconv.Itoa(int(p))
}

// sanitize makes the head what the next hop may be told: hop-by-hop headers go,
// the client's address and scheme are settled, and what only a trusted client
// may say is removed.
func (r *request) sanitize() {
	h := &r.head
	r.joinRepeated()
	r.proxy.early.Apply(h, r.eval, &r.edits)
	if r.upgrade {
		h.Del(httpmsg.TransferEncoding)
	} else {
		r.stripHop(h)
	}
	h.Del(httpmsg.XEnvoyInternal)
	h.Del(httpmsg.KeepAlive)
	h.Del(httpmsg.ProxyConnection)
	single := r.clientAddress()
	r.forwardedScheme()
	m := r.proxy.config
	if m.AppendXForwardedPort && !h.Has(httpmsg.XForwardedPort) {
		h.SetString(httpmsg.XForwardedPort, r.localPort())
	}
	r.internal = single && m.InternalCIDRs.Contains(r.rec.Remote.Addr())
	edge := !r.internal && m.UseRemoteAddress
	if r.internal {
		h.SetString(httpmsg.XEnvoyInternal, "true")
	} else {
		r.dropInternal(edge)
	}
	if m.AddUserAgent && !h.Has(httpmsg.UserAgent) && r.proxy.server.opts.Env != nil {
		h.SetString(httpmsg.XEnvoyDownstreamServiceCluster, r.proxy.server.opts.Env("ISTIO_META_CLUSTER"))
	}
	if edge && r.rec.Remote.IsValid() {
		r.local.bufC = r.rec.Remote.Addr().Unmap().AppendTo(r.local.bufC[:0])
		h.Set(httpmsg.XEnvoyExternalAddress, r.local.bufC)
	}
	r.requestID(edge)
	r.clientCert()
	if len(r.proxy.via) > 0 {
		h.AppendComma(httpmsg.Via, r.proxy.via)
	}
}

// joinRepeated makes one line of each header that Envoy keeps as one.
func (r *request) joinRepeated() {
	h := &r.head
	var seen [2]uint64
	for i := 0; i < h.Len(); i++ {
		id, _, v, ok := h.Field(i)
		if !ok || id == httpmsg.Other || id == httpmsg.Cookie || id == httpmsg.Origin || id == httpmsg.SetCookie {
			continue
		}
		w, bit := id/64, uint64(1)<<(id%64)
		if seen[w]&bit != 0 {
			h.DelAt(i)
			h.AppendComma(id, v)
		}
		seen[w] |= bit
	}
}

// stripHop removes hop-by-hop headers, and those that Connection names.
func (r *request) stripHop(h *httpmsg.Head) {
	if c := h.Get(httpmsg.Connection); len(c) > 0 {
		r.dropNamed(h, c)
	}
	h.Del(httpmsg.Connection)
	h.Del(httpmsg.Upgrade)
	h.Del(httpmsg.TransferEncoding)
	if te := h.Get(httpmsg.TE); te != nil {
		if hasToken(te, "trailers") {
			if len(te) != len("trailers") {
				h.SetString(httpmsg.TE, "trailers")
			}
		} else {
			h.Del(httpmsg.TE)
		}
	}
}

// dropNamed removes the headers that a Connection header lists.
func (r *request) dropNamed(h *httpmsg.Head, list []byte) {
	l := r.local
	l.bufA = append(l.bufA[:0], list...)
	for part := range bytes.SplitSeq(l.bufA, []byte{','}) {
		part = bytes.TrimSpace(part)
		for i, c := range part {
			if 'A' <= c && c <= 'Z' {
				part[i] = c + 32
			}
		}
		switch string(part) {
		case "", "close", "keep-alive", "upgrade", "te", "http2-settings":
		default:
			h.DelName(string(part))
		}
	}
}

// clientAddress settles who the client is and extends x-forwarded-for. It says
// whether x-forwarded-for holds one address only, the condition for an internal
// request.
func (r *request) clientAddress() (single bool) {
	m, d := r.proxy.config, r.conn.down
	peer := d.Src
	if !m.UseRemoteAddress {
		if a, alone, ok := lastAddress(r.head.Get(httpmsg.XForwardedFor), m.XFFTrustedHops); ok {
			r.rec.Remote = netip.AddrPortFrom(a, 0)
			return alone
		}
		r.rec.Remote = peer
		return false
	}
	had := r.head.Has(httpmsg.XForwardedFor)
	r.rec.Remote = peer
	if m.XFFTrustedHops > 0 {
		if a, _, ok := lastAddress(r.head.Get(httpmsg.XForwardedFor), m.XFFTrustedHops-1); ok {
			r.rec.Remote = netip.AddrPortFrom(a, 0)
		}
	}
	if !m.SkipXFFAppend && peer.IsValid() {
		a := peer.Addr()
		if a.IsLoopback() && r.local.own.IsValid() {
			a = r.local.own
		}
		r.local.bufC = a.Unmap().AppendTo(r.local.bufC[:0])
		r.head.AppendComma(httpmsg.XForwardedFor, r.local.bufC)
	}
	if m.AppendXForwardedPort && m.XFFTrustedHops == 0 {
		r.head.SetString(httpmsg.XForwardedPort, r.localPort())
	}
	return !had
}

// lastAddress reads the address that the last trusted hop appended; alone means
// that the header held no other.
func lastAddress(xff []byte, skip int) (a netip.Addr, alone, ok bool) {
	if len(xff) == 0 {
		return a, false, false
	}
	for range skip {
		i := bytes.LastIndexByte(xff, ',')
		if i < 0 {
			return a, false, false
		}
		xff = xff[:i]
	}
	i := bytes.LastIndexByte(xff, ',')
	text := bytes.TrimSpace(xff[i+1:])
	a, ok = parseAddr(text)
	return a, ok && i < 0 && skip == 0, ok
}

// parseAddr is netip.ParseAddr for bytes; the usual dotted quad doesn't
// allocate.
func parseAddr(b []byte) (netip.Addr, bool) {
	var q [4]byte
	n, digits, v := 0, 0, 0
	for i := 0; ; i++ {
		if i == len(b) || b[i] == '.' {
			if digits == 0 || v > 255 || n == 4 {
				break
			}
			q[n] = byte(v)
			n, digits, v = n+1, 0, 0
			if i == len(b) {
				if n == 4 {
					return netip.AddrFrom4(q), true
				}
				break
			}
			continue
		}
		if b[i] < '0' || b[i] > '9' || digits == 3 {
			break
		}
		v, digits = v*10+int(b[i]-'0'), digits+1
	}
	a, err := netip.ParseAddr(string(b))
	return a, err == nil
}

// forwardedScheme settles x-forwarded-proto and :scheme.
func (r *request) forwardedScheme() {
	h, m := &r.head, r.proxy.config
	own := "http"
	if r.conn.down.TLS != nil {
		own = "https"
	}
	switch {
	case m.UseRemoteAddress && (m.XFFTrustedHops == 0 || !h.Has(httpmsg.XForwardedProto)):
		h.SetString(httpmsg.XForwardedProto, own)
	case !h.Has(httpmsg.XForwardedProto):
		h.AddString(httpmsg.XForwardedProto, own)
	}
	if m.SchemeOverwrite != "" {
		h.SetScheme([]byte(m.SchemeOverwrite))
		h.SetString(httpmsg.XForwardedProto, m.SchemeOverwrite)
		return
	}
	if len(h.Scheme()) > 0 {
		return
	}
	if p := h.Get(httpmsg.XForwardedProto); equalFold(p, "http") || equalFold(p, "https") {
		h.SetScheme([]byte(strings.ToLower(string(p))))
	} else {
		h.SetScheme([]byte(own))
	}
}

// dropInternal removes what only an internal client may ask for.
func (r *request) dropInternal(edge bool) {
	h := &r.head
	for _, id := range [...]httpmsg.ID{httpmsg.XEnvoyRetriableStatusCodes, httpmsg.XEnvoyRetriableHeaderNames, httpmsg.XEnvoyRetryOn,
		httpmsg.XEnvoyRetryGRPCOn, httpmsg.XEnvoyMaxRetries, httpmsg.XEnvoyUpstreamRqTimeoutMs,
		httpmsg.XEnvoyUpstreamRqPerTryTimeoutMs, httpmsg.XEnvoyUpstreamRqTimeoutAltResponse,
		httpmsg.XEnvoyExpectedRqTimeoutMs, httpmsg.XEnvoyForceTrace, httpmsg.XEnvoyIPTags, httpmsg.XEnvoyHedgeOnPerTryTimeout} {
		if h.Has(id) {
			h.Del(id)
		}
	}
	if edge {
		h.Del(httpmsg.XEnvoyDownstreamServiceCluster)
		h.Del(httpmsg.XEnvoyDownstreamServiceNode)
		h.Del(httpmsg.XEnvoyOriginalPath)
		h.Del(httpmsg.XEnvoyOriginalHost)
		h.Del(httpmsg.XEnvoyDecoratorOperation)
	}
	if r.table == nil {
		return
	}
	for _, name := range r.table.routes.Config.InternalOnlyHeaders {
		h.DelName(name)
	}
}

// requestID makes or keeps x-request-id.
func (r *request) requestID(edge bool) {
	m := r.proxy.config
	if !m.GenerateRequestID {
		return
	}
	if len(r.head.Get(httpmsg.XRequestID)) > 0 && (m.PreserveRequestID || !edge) {
		return
	}
	r.local.bufC = telemetry.AppendUUID(r.local.bufC[:0], r.local.uuid())
	r.head.Set(httpmsg.XRequestID, r.local.bufC)
}

// clientCert settles x-forwarded-client-cert.
func (r *request) clientCert() {
	m, t, h := r.proxy.config, r.conn.tls, &r.head
	if m.ForwardClientCert == config.XFCCAlwaysForwardOnly {
		return
	}
	if m.ForwardClientCert == config.XFCCSanitize || t == nil || !t.Presented {
		h.Del(httpmsg.XForwardedClientCert)
		return
	}
	if m.ForwardClientCert == config.XFCCForwardOnly {
		return
	}
	c := r.conn
	if c.xfcc == nil {
		c.xfcc = certElement(t, m.XFCC)
	}
	if len(c.xfcc) == 0 {
		return
	}
	if m.ForwardClientCert == config.XFCCAppendForward {
		h.AppendComma(httpmsg.XForwardedClientCert, c.xfcc)
	} else {
		h.Set(httpmsg.XForwardedClientCert, c.xfcc)
	}
}

// certElement is our element of x-forwarded-client-cert.
func certElement(t *telemetry.TLS, f config.XFCCFields) []byte {
	b := []byte{}
	add := func(parts ...string) {
		if len(b) > 0 {
			b = append(b, ';')
		}
		for _, p := range parts {
			b = append(b, p...)
		}
	}
	for _, u := range t.LocalURI {
		add("By=", u)
	}
	if t.PeerSum != "" {
		add("Hash=", t.PeerSum)
	}
	if t.Peer != nil && (f.Cert || f.Chain) {
		text := url.QueryEscape(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: t.Peer.Raw})))
		text = string(bytes.ReplaceAll([]byte(text), []byte("+"), []byte("%20")))
		if f.Cert {
			add(`Cert="`, text, `"`)
		}
		if f.Chain {
			add(`Chain="`, text, `"`)
		}
	}
	if f.Subject {
		add(`Subject="`, t.PeerSubject, `"`)
	}
	if f.URI {
		if len(t.PeerURI) == 0 {
			add("URI=")
		}
		for _, u := range t.PeerURI {
			add("URI=", u)
		}
	}
	if f.DNS {
		for _, n := range t.PeerDNS {
			add("DNS=", n)
		}
	}
	return b
}
