package telemetry

import (
	"net/netip"

	"google.golang.org/protobuf/encoding/protowire"

	"sluice/internal/config"
)

// alsCommon appends the content of AccessLogCommon.
func (w *Formatter) alsCommon(dst []byte, r *Record) []byte {
	c := r.Conn
	dst = appendAddress(dst, 2, r.remote())
	if c.LocalPipe != "" {
		dst = appendPipe(dst, 3, c.LocalPipe)
	} else {
		dst = appendAddress(dst, 3, c.Local)
	}
	dst = appendTLS(dst, c)
	dst = appendTime(dst, 5, r.Wall.UnixNano())
	for i, at := range [...]int64{r.RequestEnd, r.UpstreamSend, r.UpstreamSent, r.ResponseHead, r.ResponseEnd, r.SendHead, r.SendEnd} {
		if at != 0 {
			dst = appendTime(dst, protowire.Number(6+i), max(at-r.Start, 0))
		}
	}
	dst = appendUpstream(dst, r)
	dst = appendMetadata(dst, r.Dynamic)
	dst = appendNamed(dst, 18, r.UpstreamFailure)
	dst = appendNamed(dst, 19, r.Route)
	dst = appendAddress(dst, 20, c.Direct)
	dst = appendTime(dst, 23, max(r.End-r.Start, 0))
	dst = appendCount(dst, 24, uint64(r.Attempts))
	dst = appendNamed(dst, 25, c.Termination)
	dst = w.appendOp(dst, 26, "STREAM_ID", r)
	if number, ends := logTypeNumber(r.LogType); !ends {
		dst = appendCount(appendCount(dst, 27, 1), 33, number)
	} else {
		dst = appendCount(dst, 33, number)
	}
	dst = appendNamed(dst, 28, c.Failure)
	return appendCount(appendCount(appendCount(appendCount(dst, 29, r.DownWireOut), 30, r.DownWireIn), 31, r.UpWireOut), 32, r.UpWireIn)
}

// appendUpstream appends where the request or the connection went.
func appendUpstream(dst []byte, r *Record) []byte {
	if host, err := netip.ParseAddrPort(r.UpstreamHost); err == nil {
		dst = appendAddress(dst, 13, host)
	} else if r.UpstreamHost != "" {
		dst = appendPipe(dst, 13, r.UpstreamHost)
	}
	dst = appendAddress(dst, 14, r.UpstreamLocal)
	dst = appendNamed(dst, 15, r.Cluster)
	if r.Flags.Empty() {
		return dst
	}
	dst, flags := begin(dst, 16)
	for _, f := range r.Flags.list[:r.Flags.n] {
		dst = appendFlag(dst, f)
	}
	return end(dst, flags)
}

// appendFlag appends a flag to ResponseFlags, whose fields have the numbers of the
// flags but for the last; one of a drop for overload has none.
func appendFlag(dst []byte, f Flag) []byte {
	switch f {
	case UAEX: // a message whose reason is EXTERNAL_SERVICE
		return appendBytes(dst, protowire.Number(f), "\x08\x01")
	case DO:
		return dst
	case DR:
		f = DO
	}
	return appendCount(dst, protowire.Number(f), 1)
}

// logTypeNumber is a value of AccessLogType, and whether the record is the last of
// its request or connection.
func logTypeNumber(name string) (n uint64, ends bool) {
	switch name {
	case "TcpUpstreamConnected":
		return 1, false
	case "TcpPeriodic":
		return 2, false
	case "TcpConnectionEnd":
		return 3, true
	case "DownstreamEnd":
		return 6, true
	case "TcpConnectionStart":
		return 14, false
	}
	return 0, true
}

func appendMetadata(dst []byte, m config.Metadata) []byte {
	if len(m) == 0 {
		return dst
	}
	dst, at := begin(dst, 17)
	for name, s := range m {
		var pair, value int
		dst, pair = begin(dst, 1)
		dst = appendBytes(dst, pairKey, name)
		dst, value = begin(dst, pairValue)
		dst = end(end(AppendStruct(dst, s), value), pair)
	}
	return end(dst, at)
}

// appendTLS appends TLSProperties of a connection that has them.
func appendTLS(dst []byte, c *Conn) []byte {
	t := c.TLS
	if t == nil {
		return dst
	}
	dst, at := begin(dst, 4)
	dst = appendCount(dst, 1, tlsNumber(t.Version))
	dst = appendNamed(dst, 3, c.SNI)
	dst = appendCertificate(dst, 4, t.LocalURI, t.LocalSubject, "")
	dst = appendCertificate(dst, 5, t.PeerURI, t.PeerSubject, t.PeerIssuer)
	return end(appendNamed(dst, 6, t.SessionID), at)
}

func tlsNumber(version string) uint64 {
	for i, v := range [...]string{"TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"} {
		if v == version {
			return uint64(i) + 1
		}
	}
	return 0
}

func appendCertificate(dst []byte, field protowire.Number, uris []string, subject, issuer string) []byte {
	dst, at := begin(dst, field)
	for _, uri := range uris {
		var name int
		dst, name = begin(dst, 1)
		dst = end(appendNamed(dst, 1, uri), name)
	}
	return end(appendNamed(appendNamed(dst, 2, subject), 3, issuer), at)
}

// appendAddress appends an envoy.config.core.v3.Address of a socket.
func appendAddress(dst []byte, field protowire.Number, a netip.AddrPort) []byte {
	if !a.IsValid() {
		return dst
	}
	dst, address := begin(dst, field)
	dst, socket := begin(dst, 1)
	dst, text := begin(dst, 2)
	dst = end(a.Addr().Unmap().AppendTo(dst), text)
	dst = protowire.AppendVarint(protowire.AppendTag(dst, 3, protowire.VarintType), uint64(a.Port()))
	return end(end(dst, socket), address)
}

func appendPipe(dst []byte, field protowire.Number, path string) []byte {
	dst, address := begin(dst, field)
	dst, pipe := begin(dst, 2)
	return end(end(appendNamed(dst, 1, path), pipe), address)
}
