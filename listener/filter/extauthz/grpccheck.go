package extauthz

import (
	"encoding/pem"
	"net/netip"
	"net/url"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/downstream"
	"sluice/upstream/call"
)

const method = "/envoy.service.auth.v3.Authorization/Check"

func (k *check) askGRPC(p *config.AuthzGRPC) {
	k.call(unary(p, k.request(), func(h *httpmsg.Head) { k.f.add.Apply(h, k.x.Eval, &k.x.Edits) }), readGRPC)
}

// unary is the call with a CheckRequest; add writes its initial metadata.
func unary(p *config.AuthzGRPC, request []byte, add func(h *httpmsg.Head)) *call.Request {
	r := call.Unary(p.Cluster, p.Authority, method, request, p.Timeout)
	own, extra := r.Head, &httpmsg.Head{}
	add(extra)
	r.Head = func(h *httpmsg.Head) {
		own(h)
		each(extra, func(name, value string) { h.AddName(name, []byte(value)) })
	}
	return r
}

func readGRPC(a *call.Answer) outcome {
	m, status, _ := a.Message()
	if status != 0 {
		return outcome{kind: failed}
	}
	return readVerdict(m)
}

// message writes the fields of a protobuf message.
type message []byte

func (m *message) bytes(field protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, field, protowire.BytesType), b)
}

// text leaves out what is empty, as proto3 does.
func (m *message) text(field protowire.Number, s string) {
	if s != "" {
		m.bytes(field, []byte(s))
	}
}

func (m *message) number(field protowire.Number, v uint64) {
	if v != 0 {
		*m = protowire.AppendVarint(protowire.AppendTag(*m, field, protowire.VarintType), v)
	}
}

func (m *message) pair(field protowire.Number, key, value string) {
	var e message
	e.text(1, key)
	e.text(2, value)
	m.bytes(field, e)
}

// request is envoy.service.auth.v3.CheckRequest, whose one field is an
// AttributeContext.
func (k *check) request() []byte {
	x := k.x
	var context, r message
	service := string(x.Request.Get(httpmsg.XEnvoyDownstreamServiceCluster))
	context.ends(x.Conn, x.Record.Remote, service, k.f.policy.PeerCertificate)
	context.bytes(4, k.attributes())
	for key, v := range k.f.route.Context {
		context.pair(10, key, v)
	}
	context.bytes(11, k.metadata())
	if k.f.policy.TLSSession {
		context.session(x.Conn)
	}
	context.bytes(13, nil) // of the route: always there, as Envoy's
	r.bytes(1, context)
	return r
}

// ends are the two of a connection: source and destination of an AttributeContext.
func (m *message) ends(c *downstream.Connection, client netip.AddrPort, service string, certified bool) {
	source := peer(client, service, principal(c.TLS, false))
	if certified {
		source.text(5, certificate(c.TLS))
	}
	m.bytes(1, source)
	m.bytes(2, peer(c.Dst, "", principal(c.TLS, true)))
}

func (m *message) session(c *downstream.Connection) {
	var s message
	s.text(1, c.SNI)
	m.bytes(12, s)
}

// metadata is core.Metadata of the name spaces that the service may see.
func (k *check) metadata() []byte {
	var m message
	for _, ns := range k.f.policy.Metadata {
		if s, ok := k.x.Record.Dynamic[ns]; ok {
			var e message
			e.text(1, ns)
			e.bytes(2, telemetry.AppendStruct(nil, s))
			m.bytes(1, e)
		}
	}
	return m
}

// attributes is AttributeContext.Request.
func (k *check) attributes() []byte {
	x, wall := k.x, k.x.Record.Wall
	var r, at, h message
	at.number(1, uint64(wall.Unix()))
	at.number(2, uint64(wall.Nanosecond()))
	h.text(1, strconv.FormatUint(x.Random, 10))
	h.text(2, string(x.Request.Method()))
	for _, f := range k.headers() {
		h.pair(3, f.name, f.value)
	}
	h.text(4, text(x.Request.Path()))
	h.text(5, text(x.Request.Authority()))
	h.text(6, string(x.Request.Scheme()))
	h.number(9, x.Record.BytesIn)
	h.text(10, x.Record.Protocol.String())
	if b := k.body(); len(b) > 0 && k.f.policy.Body.Raw {
		h.bytes(12, b)
	} else {
		h.text(11, text(b))
	}
	r.bytes(1, at)
	r.bytes(2, h)
	return r
}

// peer is AttributeContext.Peer.
func peer(a netip.AddrPort, service, principal string) (p message) {
	var address, socket message
	if a.IsValid() {
		socket.text(2, a.Addr().Unmap().String())
		socket.number(3, uint64(a.Port()))
		address.bytes(1, socket)
		p.bytes(1, address)
	}
	p.text(2, service)
	p.text(4, principal)
	return p
}

// certificate is the client's, in PEM and escaped for a URL.
func certificate(t *downstream.TLS) string {
	if t == nil || len(t.Peer) == 0 {
		return ""
	}
	return url.QueryEscape(string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: t.Peer[0].Raw})))
}

// principal is the first URI of a certificate, else its first DNS name, else its
// subject.
func principal(t *downstream.TLS, own bool) string {
	if t == nil {
		return ""
	}
	uris, dns, subject := t.PeerURIs, t.PeerDNS, t.PeerSubject
	if own {
		uris, dns, subject = t.LocalURIs, t.LocalDNS, t.LocalSubject
	}
	for _, list := range [...][]string{uris, dns} {
		if len(list) > 0 {
			return list[0]
		}
	}
	return subject
}
