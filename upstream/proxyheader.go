package upstream

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"sluice/internal/config"
)

// From is whom a PROXY header speaks of: the client, where it meant to go, and
// the TLVs that came with it (type, two bytes of length, value).
type From struct {
	Src, Dst netip.AddrPort
	TLVs     []byte
}

const proxySignature = "\r\n\r\n\x00\r\nQUIT\n"

// appendProxy appends a PROXY header. Addresses that are missing or of different
// families make it UNKNOWN (version 1) or LOCAL (version 2).
func appendProxy(dst []byte, h *config.ProxyHeader, from *From) []byte {
	src, to := from.Src.Addr().Unmap(), from.Dst.Addr().Unmap()
	known := src.IsValid() && to.IsValid() && src.Is4() == to.Is4()
	if h.Version == 1 {
		if !known {
			return append(dst, "PROXY UNKNOWN\r\n"...)
		}
		family := "TCP6"
		if src.Is4() {
			family = "TCP4"
		}
		return fmt.Appendf(dst, "PROXY %s %s %s %d %d\r\n", family, src, to, from.Src.Port(), from.Dst.Port())
	}
	dst = append(dst, proxySignature...)
	if !known {
		return append(dst, 0x20, 0, 0, 0)
	}
	family := byte(0x21)
	if src.Is4() {
		family = 0x11
	}
	dst = append(dst, 0x21, family, 0, 0)
	at := len(dst)
	dst = append(append(dst, src.AsSlice()...), to.AsSlice()...)
	dst = binary.BigEndian.AppendUint16(dst, from.Src.Port())
	dst = binary.BigEndian.AppendUint16(dst, from.Dst.Port())
	dst = appendTLVs(dst, h, from.TLVs)
	binary.BigEndian.PutUint16(dst[at-2:], uint16(len(dst)-at))
	return dst
}

// maxTLVs keeps the header's length within its two bytes.
const maxTLVs = 60 << 10

// appendTLVs appends the added ones, then those of the client that may pass and
// weren't added anew.
func appendTLVs(dst []byte, h *config.ProxyHeader, came []byte) []byte {
	start := len(dst)
	room := func(n int) bool { return len(dst)-start+n <= maxTLVs }
	added := make([]byte, 0, 8)
	for _, t := range h.Added {
		if !room(3 + len(t.Value)) {
			return dst
		}
		dst = append(dst, t.Type, byte(len(t.Value)>>8), byte(len(t.Value)))
		dst = append(dst, t.Value...)
		added = append(added, t.Type)
	}
	for len(came) >= 3 {
		n := 3 + int(came[1])<<8 + int(came[2])
		if n > len(came) || !room(n) {
			break
		}
		if (h.PassAll || bytes.IndexByte(h.Pass, came[0]) >= 0) && bytes.IndexByte(added, came[0]) < 0 {
			dst = append(dst, came[:n]...)
		}
		came = came[n:]
	}
	return dst
}
