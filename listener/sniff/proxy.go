package sniff

import (
	"bytes"
	"net/netip"
	"strconv"
	"strings"
)

const (
	proxyV1       = "PROXY "
	proxyV2       = "\r\n\r\n\x00\r\nQUIT\n"
	maxProxyV1    = 107 // with CRLF, as the specification counts
	proxyV2Header = 16
)

// Proxy is a PROXY protocol header. Src and Dst are zero if it names none
// (UNKNOWN, LOCAL): the socket's own addresses hold.
type Proxy struct {
	Version  int
	Src, Dst netip.AddrPort
	TLVs     []byte // version 2: what follows the addresses; points into the bytes
}

// ProxyHeader looks for a PROXY header, version 1 or 2, at the front of b. With
// Yes n is its length. No means there is none, Bad that it is broken.
func ProxyHeader(b []byte, p *Proxy) (n int, v Verdict) {
	*p = Proxy{}
	switch {
	case startsLike(b, proxyV2):
		if len(b) < proxyV2Header {
			return 0, More
		}
		p.Version = 2
		return p.v2(b)
	case startsLike(b, proxyV1):
		p.Version = 1
		return p.v1(b)
	}
	return 0, No
}

// startsLike reports whether b begins with sig or is a part of it.
func startsLike(b []byte, sig string) bool {
	k := min(len(b), len(sig))
	return string(b[:k]) == sig[:k]
}

func (p *Proxy) v1(b []byte) (int, Verdict) {
	end := bytes.Index(b[:min(len(b), maxProxyV1)], []byte("\r\n"))
	if end < 0 {
		if len(b) >= maxProxyV1 {
			p.Version = 0 // for Envoy that is no header at all
			return 0, Bad
		}
		return 0, More
	}
	f := strings.Split(string(b[:end]), " ")
	if len(f) >= 2 && f[1] == "UNKNOWN" {
		return end + 2, Yes
	}
	if len(f) != 6 {
		return 0, Bad
	}
	var ok [2]bool
	p.Src, ok[0] = v1Address(f[1], f[2], f[4])
	p.Dst, ok[1] = v1Address(f[1], f[3], f[5])
	if !ok[0] || !ok[1] {
		return 0, Bad
	}
	return end + 2, Yes
}

func v1Address(family, addr, port string) (netip.AddrPort, bool) {
	a, err := netip.ParseAddr(addr)
	n, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || perr != nil || a.Zone() != "" {
		return netip.AddrPort{}, false
	}
	if !(family == "TCP4" && a.Is4() || family == "TCP6" && a.Is6()) {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a, uint16(n)), true
}

func (p *Proxy) v2(b []byte) (int, Verdict) {
	command, family := b[12], b[13]>>4
	n := proxyV2Header + int(b[14])<<8 + int(b[15])
	if command>>4 != 2 || command&15 > 1 {
		return 0, Bad
	}
	if len(b) < n {
		return 0, More
	}
	body := b[proxyV2Header:n]
	if command&15 == 0 { // LOCAL: a health check of the load balancer itself
		return n, Yes
	}
	size := 0
	switch family {
	case 0:
	case 1:
		size = 4
	case 2:
		size = 16
	default:
		return 0, Bad
	}
	if size > 0 {
		if len(body) < 2*size+4 {
			return 0, Bad
		}
		p.Src = v2Address(body, 0, size)
		p.Dst = v2Address(body, 1, size)
		p.TLVs = body[2*size+4:]
	}
	return n, Yes
}

func v2Address(body []byte, which, size int) netip.AddrPort {
	a, _ := netip.AddrFromSlice(body[which*size : which*size+size])
	port := body[2*size+2*which:]
	return netip.AddrPortFrom(a, uint16(port[0])<<8|uint16(port[1]))
}

// EachTLV gives the header's TLVs; one that is cut short ends it. whole is the
// TLV with its type and length.
func (p *Proxy) EachTLV(f func(typ byte, value, whole []byte)) {
	for b := p.TLVs; len(b) >= 3; {
		n := 3 + int(b[1])<<8 + int(b[2])
		if n > len(b) {
			return
		}
		f(b[0], b[3:n], b[:n])
		b = b[n:]
	}
}
