package rbac

import (
	"net/netip"

	"sluice/internal/config"
)

// operand is what of a subject a key looks at. Operators that look at the same
// share one.
type operand struct {
	op     config.RBACOp
	header string // of RBACHeader
}

// key is a condition that an index can look up: one of the operand's values
// equals value, begins or ends with it, or has this namespace in it. Addresses and
// ports are keys as bytes.
type key struct {
	of    operand
	kind  config.StringKind // exact, prefix, suffix, or contains for a namespace
	fold  bool              // value and what is looked up are in lower case
	value string
}

// keyOf gives a key that holds whenever e matches. It may hold when e doesn't
// match: what an index finds is looked at in full.
func keyOf(e *config.RBACExpr) (k key, ok bool) {
	switch e.Op {
	case config.RBACHeader:
		return headerKey(e.Header)
	case config.RBACURLPath, config.RBACURITemplate:
		return stringKey(operand{op: config.RBACURLPath}, e.String, true)
	case config.RBACServerName, config.RBACAuthenticated:
		// These fold by Unicode's rules, which ours are not.
		return stringKey(operand{op: e.Op}, e.String, false)
	case config.RBACDestPort, config.RBACDestPortRange:
		b := portBytes(uint16(e.Ports[0]))
		return key{of: operand{op: config.RBACDestPort}, value: string(b[:])}, e.Ports[1]-e.Ports[0] == 1
	case config.RBACSourceIP, config.RBACDirectRemoteIP:
		return addressKey(config.RBACDirectRemoteIP, e.Prefix)
	case config.RBACDestIP, config.RBACRemoteIP:
		return addressKey(e.Op, e.Prefix)
	}
	return key{}, false
}

// headerKey is of matchers that need the header to be there. Inverted ones match
// by what isn't.
func headerKey(m *config.HeaderMatch) (key, bool) {
	if m.Present || m.Absent || m.Range != nil || m.Invert {
		return key{}, false
	}
	return stringKey(operand{config.RBACHeader, m.Name}, m.String, true)
}

// stringKey has no key for an empty value: a header that is missing may count as
// empty, and everything begins with it.
func stringKey(of operand, m *config.StringMatch, fold bool) (key, bool) {
	if m != nil && m.Kind == config.MatchRegex {
		return regexKey(of, m.Regex)
	}
	if m == nil || m.Value == "" || m.IgnoreCase && !fold {
		return key{}, false
	}
	k := key{of: of, kind: m.Kind, fold: m.IgnoreCase, value: m.Value}
	if k.fold {
		k.value = string(appendLower(nil, m.Value))
	}
	return k, m.Kind != config.MatchContains
}

// addressKey is the whole bytes of a range: addresses in it begin with them.
func addressKey(op config.RBACOp, p netip.Prefix) (key, bool) {
	bits := p.Bits()
	if bits < 8 {
		return key{}, false
	}
	if p.Addr().Is4() {
		bits += 96 // as in As16
	}
	a := p.Addr().As16()
	return key{of: operand{op: op}, kind: config.MatchPrefix, value: string(a[:bits/8])}, true
}

func portBytes(p uint16) [2]byte { return [2]byte{byte(p >> 8), byte(p)} }

func appendLower(dst []byte, s string) []byte {
	for _, c := range []byte(s) {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}
