package listener

import (
	"bytes"
	"strings"

	"sluice/internal/worker"
	"sluice/listener/sniff"
)

// OnData looks at the first bytes. It consumes a PROXY header and nothing else.
func (c *conn) OnData(_ *worker.Conn, b []byte) int {
	used := 0
	c.unread = true
	for c.proxy || c.tls || c.http {
		n, v := c.inspect(b[used:])
		used += n
		switch v {
		case sniff.More:
			return used
		case sniff.Yes:
			c.looked()
			c.inspected() // may hand off, then other inspectors wait
		default:
			c.looked()
			c.lis.count.FilterError++
			c.end()
			return used
		}
	}
	return used
}

// looked ends the listener filters' part of the books.
func (c *conn) looked() {
	if c.pre {
		c.pre = false
		c.lis.count.PreActive--
	}
}

// inspect runs the inspectors that are left. Yes: all are done.
func (c *conn) inspect(b []byte) (used int, v sniff.Verdict) {
	if c.proxy {
		if used, v = c.proxyHeader(b); v != sniff.Yes {
			return used, v
		}
		b = b[used:]
	}
	if c.tls {
		if v = c.clientHello(b); v != sniff.Yes {
			return used, v
		}
	}
	if c.http && !c.isTLS {
		if v = c.requestLine(b); v != sniff.Yes {
			return used, v
		}
	}
	c.http = false
	return used, sniff.Yes
}

func (c *conn) proxyHeader(b []byte) (int, sniff.Verdict) {
	var p sniff.Proxy
	n, v := sniff.ProxyHeader(b, &p)
	switch v {
	case sniff.More:
		return 0, v
	case sniff.No:
		if !c.lis.config.Filters.ProxyProtocol.AllowWithoutHeader {
			if len(b) < 6 {
				return 0, sniff.More // as Envoy: too few bytes to blame
			}
			c.lis.count.ProxyNotFound++
			return 0, sniff.Bad
		}
		c.lis.count.ProxyAllowed++
	case sniff.Bad:
		if p.Version == 0 {
			c.lis.count.ProxyNotFound++
		} else {
			c.lis.count.ProxyErrors[p.Version-1]++
		}
		return 0, v
	}
	if v == sniff.Yes {
		if c.lis.config.Filters.ProxyProtocol.Disallowed[p.Version-1] {
			c.lis.count.ProxyDisallowed[p.Version-1]++
			return 0, sniff.Bad
		}
		c.lis.count.ProxyFound[p.Version-1]++
		c.tlvs(&p)
	}
	c.proxy = false
	c.Conn.Discount(n)
	if p.Src.IsValid() {
		note := c.Note()
		note.DirectSrc, note.Proxied = c.Src, true
		c.Src, c.Dst, c.Restored = p.Src, p.Dst, true
		f := &c.lis.config.Filters
		c.tls = f.TLSInspector != nil && !f.TLSInspector.Disabled(c.Dst.Port())
		c.http = f.HTTPInspector != nil && !f.HTTPInspector.Disabled(c.Dst.Port())
	}
	return n, sniff.Yes
}

// tlvs keeps those that rules or upstreams ask for.
func (c *conn) tlvs(p *sniff.Proxy) {
	f := c.lis.config.Filters.ProxyProtocol
	p.EachTLV(func(typ byte, value, whole []byte) {
		for i := range f.Rules {
			r := &f.Rules[i]
			if r.Type != typ {
				continue
			}
			c.Note().Dynamic.Set(r.Namespace, r.Key, strings.ToValidUTF8(string(value), "!"))
		}
		if f.PassAll || bytes.IndexByte(f.Pass, typ) >= 0 {
			n := c.Note()
			n.TLVs = append(n.TLVs, whole...)
		}
	})
}

func (c *conn) clientHello(b []byte) sniff.Verdict {
	var h sniff.Hello
	v := sniff.ClientHello(b, c.lis.w.Scratch(), &h)
	switch v {
	case sniff.More:
		return v
	case sniff.TooLarge:
		c.lis.count.HelloTooLarge++
		return v
	case sniff.No:
		c.lis.count.TLSNotFound++
		c.noHello = wrongVersion
		if m := string(b[:4]); m == "GET " || m == "POST" || m == "HEAD" || m == "PUT " { // BoringSSL's check
			c.noHello = httpRequest
		}
	case sniff.Yes:
		c.lis.count.TLSFound++
		c.isTLS = true
		c.SNI = strings.ToLower(string(h.ServerName))
		n := c.lis.count
		if c.SNI != "" {
			n.SNIFound++
		} else {
			n.SNINotFound++
		}
		h.Protocols(func(name []byte) bool {
			c.Protocols = append(c.Protocols, protocolName(name))
			return true
		})
		if len(c.Protocols) > 0 {
			n.ALPNFound++
		} else {
			n.ALPNNotFound++
		}
	}
	c.tls = false
	return sniff.Yes
}

// protocolName gives the usual protocols without an allocation.
func protocolName(b []byte) string {
	for _, s := range [...]string{"istio-http/1.1", "istio-h2", "istio", "istio-peer-exchange", "h2", "http/1.1"} {
		if string(b) == s {
			return s
		}
	}
	return string(b)
}

func (c *conn) requestLine(b []byte) sniff.Verdict {
	version, v := sniff.HTTP(b)
	switch v {
	case sniff.More, sniff.TooLarge:
		return v
	}
	switch n := c.lis.count; version {
	case sniff.HTTP10:
		n.HTTP10++
	case sniff.HTTP11:
		n.HTTP11++
	case sniff.HTTP2:
		n.HTTP2++
	default:
		n.HTTPNotFound++
	}
	if p := version.Protocol(); p != "" {
		c.Protocols = append(c.Protocols[:0], p)
	}
	c.http = false
	return sniff.Yes
}

// notTLS is why tls_inspector found no TLS.
type notTLS uint8

const (
	wrongVersion notTLS = 1 + iota
	httpRequest
)

// String is BoringSSL's error as Envoy logs it, "" if the inspector didn't run.
func (n notTLS) String() string {
	switch n {
	case wrongVersion:
		return "TLS_error|error:100000f7:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER:TLS_error_end"
	case httpRequest:
		return "TLS_error|error:1000009c:SSL routines:OPENSSL_internal:HTTP_REQUEST:TLS_error_end"
	}
	return ""
}

func (c *conn) stopInspecting() {
	if c.timer != nil {
		c.lis.w.Stop(c.timer)
	}
}

// inspectTimeout is listener_filters_timeout.
func (c *conn) inspectTimeout() {
	c.lis.count.PreTimeout++
	c.looked()
	if !c.lis.config.ContinueOnTimeout {
		c.end()
		return
	}
	c.proxy, c.tls, c.http = false, false, false
	c.inspected()
}
