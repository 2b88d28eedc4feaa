package rbac

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/listener/downstream"
)

// dice makes rules and subjects of few words, so that they often meet.
type dice struct{ *rand.Rand }

func (d dice) of(list ...string) string { return list[d.IntN(len(list))] }
func (d dice) one(in int) bool          { return d.IntN(in) == 0 }

func (d dice) word() string {
	return d.of("", "a", "A", "b", "ab", "aB", "ba", "/a", "/a/b", "/A", "k", "\u212a", "é", "É", "7", "a,b", "\xff", "spiffe://t/ns/a/sa/b", "/ns/ns/b/", "/ns//")
}

// long is a name of more bytes than an index tells apart by their number.
const long = "a-header-name-that-is-longer-than-sixty-four-bytes-as-few-but-some-are"

func (d dice) name() string {
	return d.of("x", "y", "cookie", long, "host", ":method", ":path", ":authority", ":scheme", ":protocol", ":status", ":odd", "", "X")
}

func (d dice) address() netip.Addr {
	return netip.MustParseAddr(d.of("10.0.0.1", "10.0.0.2", "10.0.1.1", "::ffff:10.0.0.1", "fd00::1", "fd00::2", "fd00:1::1", "fe80::1%eth0", "::", "0.0.0.0"))
}

func (d dice) prefix() netip.Prefix {
	if d.one(20) {
		return netip.Prefix{}
	}
	a := d.address()
	return netip.PrefixFrom(a.WithZone(""), []int{0, 7, 8, 20, 24, 31, 32, a.BitLen()}[d.IntN(8)])
}

func (d dice) match() *config.StringMatch {
	m := &config.StringMatch{Value: d.word(), IgnoreCase: d.one(4)}
	if m.Kind = config.StringKind(d.IntN(5)); d.one(2) {
		m.Kind = config.MatchExact
	}
	if m.Kind == config.MatchRegex {
		m.Regex, m.IgnoreCase = regexp.MustCompile(d.pattern()), false
	}
	if m.IgnoreCase && !d.one(4) {
		m.Value = strings.ToLower(m.Value)
	}
	return m
}

func (d dice) pattern() string {
	p := d.of("ab", "a.*", "[ab]", "", "/.*", ".*b", "a|b", "(?i)a.*", "\ufffd.*", ".*/ns/a/.*", ".*/ns/b/.*", ".*/ns/a/sa/b", "spiffe://.+/sa/(a|b)", "spiffe://.*/sa/b", "(?m)^b$", "a\n?")
	return d.of("^(?:"+p+")$", "^(?:"+p+")$", "^(?:"+p+")", "(?:"+p+")$", "^|"+p)
}

func (d dice) header() *config.HeaderMatch {
	h := &config.HeaderMatch{Name: d.name(), Invert: d.one(6), TreatMissingAsEmpty: d.one(4)}
	switch d.IntN(10) {
	case 0:
		h.Present = true
	case 1:
		h.Absent = true
	case 2:
		h.Range = &[2]int64{5, 8}
	case 3: // no kind at all
		return h
	}
	h.String = d.match()
	return h
}

func (d dice) exprs(depth, most int) (list []config.RBACExpr) {
	for range d.IntN(most + 1) {
		list = append(list, d.expr(depth))
	}
	return list
}

func (d dice) expr(depth int) config.RBACExpr {
	e := config.RBACExpr{Op: config.RBACOp(d.IntN(int(config.RBACFilterState) + 1)), Key: d.word()}
	if depth == 0 && e.Op <= config.RBACNot {
		e.Op = config.RBACHeader
	}
	switch e.Op {
	case config.RBACAnd, config.RBACOr:
		e.Sub = d.exprs(depth-1, 3)
		if e.Op == config.RBACOr && d.one(4) {
			e.Sub = append(e.Sub, d.exprs(0, 20)...)
		}
	case config.RBACNot:
		e.Sub = []config.RBACExpr{d.expr(depth - 1)}
	case config.RBACHeader:
		e.Header = d.header()
	case config.RBACDestIP, config.RBACSourceIP, config.RBACDirectRemoteIP, config.RBACRemoteIP:
		e.Prefix = d.prefix()
	case config.RBACDestPort, config.RBACDestPortRange:
		from := []uint32{0, 80, 81, 8080, 65535, 65536 + 80}[d.IntN(6)]
		e.Ports = [2]uint32{from, from + uint32(d.IntN(3))}
	case config.RBACMetadata:
		e.Metadata = &config.MetadataMatch{Namespace: "n", Path: []string{d.of("a", "b")}, Value: &config.ValueMatch{String: d.match()}, Invert: d.one(4)}
	default:
		if !d.one(10) {
			e.String = d.match()
		}
	}
	return e
}

func (d dice) rules() *config.RBACRules {
	r := &config.RBACRules{Action: config.RBACAction(d.IntN(3))}
	for range d.IntN(40) {
		p := config.RBACPolicy{Name: fmt.Sprint(d.IntN(30)), Permissions: d.exprs(3, 2), Principals: d.exprs(3, 2)}
		if d.one(10) {
			p.Name = ""
		}
		if d.one(5) && len(r.Policies) > 0 {
			p = r.Policies[d.IntN(len(r.Policies))]
		}
		r.Policies = append(r.Policies, p)
	}
	return r
}

func (d dice) head() *httpmsg.Head {
	h := &httpmsg.Head{}
	h.SetMethod([]byte(d.word()))
	h.SetPath([]byte(d.of("/a", "/a/b", "/A", "a", "") + d.of("", "", "?a", "#b", "?a#b")))
	h.SetAuthority([]byte(d.word()))
	h.SetScheme([]byte(d.word()))
	h.SetProtocol([]byte(d.word()))
	for range d.IntN([]int{3, 8, 60}[d.IntN(3)] + 1) {
		h.Add([]byte(d.of("x", "x", "y", "cookie", "host", "z", long)), []byte(d.word()))
	}
	for range d.IntN(3) {
		h.DelName(d.of("x", "y", "cookie"))
	}
	return h
}

func (d dice) addrPort() netip.AddrPort {
	if d.one(10) {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(d.address(), []uint16{80, 81, 8080, 65535}[d.IntN(4)])
}

func (d dice) words(most int) (list []string) {
	for range d.IntN(most + 1) {
		list = append(list, d.word())
	}
	return list
}

func (d dice) subject() *Subject {
	c := &downstream.Connection{Src: d.addrPort(), Dst: d.addrPort(), SNI: d.word()}
	if d.one(3) {
		n := c.Note()
		n.DirectSrc, n.Proxied = d.addrPort(), d.one(2)
	}
	if !d.one(3) {
		c.TLS = &downstream.TLS{PeerURIs: d.words(3), PeerDNS: d.words(20), PeerSubject: d.word()}
	}
	s := &Subject{Conn: c, Remote: d.addrPort(), Dynamic: config.Metadata{"n": {"a": d.word()}}}
	if !d.one(5) {
		s.Head, s.Scratch = d.head(), new([]byte)
	}
	return s
}

// checkAgainstScan compares rules as Compile makes them, and with an index
// wherever there can be one, with the plain reading of them.
func checkAgainstScan(t *testing.T, seed uint64) (matched bool) {
	t.Helper()
	d := dice{rand.New(rand.NewPCG(seed, 1))}
	r := d.rules()
	compiled := map[string]*Rules{"ordinary": Compile(r), "indexed": compile(r, 0)}
	for range 8 {
		s := d.subject()
		ok, policy := scan(r, s)
		for name, c := range compiled {
			if gotOK, got := c.Evaluate(s); gotOK != ok || got != policy {
				t.Fatalf("seed %d, %s: %v %q, want %v %q", seed, name, gotOK, got, ok, policy)
			}
		}
		matched = matched || policy != ""
	}
	return matched
}

// scan asks each policy, one after the other, whether a permission and a
// principal match.
func scan(r *config.RBACRules, s *Subject) (bool, string) {
	matched := ""
	for _, p := range r.Policies {
		if anyOf(p.Permissions, s) && anyOf(p.Principals, s) {
			matched = p.Name
			break
		}
	}
	switch r.Action {
	case config.RBACAllow:
		return matched != "", matched
	case config.RBACDeny:
		return matched == "", matched
	}
	return true, matched
}

func anyOf(list []config.RBACExpr, s *Subject) bool {
	return slices.ContainsFunc(list, func(e config.RBACExpr) bool { return holds(&e, s) })
}

func holds(e *config.RBACExpr, s *Subject) bool {
	switch e.Op {
	case config.RBACAnd:
		return !slices.ContainsFunc(e.Sub, func(e config.RBACExpr) bool { return !holds(&e, s) })
	case config.RBACOr:
		return anyOf(e.Sub, s)
	case config.RBACNot:
		return !anyOf(e.Sub, s)
	}
	return (&condition{RBACExpr: e}).match(s)
}

func TestCompiledRulesDecideAsAPlainScanDoes(t *testing.T) {
	n, matched := 10000, 0
	if testing.Short() {
		n = 2000
	}
	for seed := range n {
		if checkAgainstScan(t, uint64(seed)) {
			matched++
		}
	}
	if matched < n/4 || matched == n {
		t.Errorf("%d of %d random rules matched: they say little", matched, n)
	}
}

func FuzzEvaluate(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { checkAgainstScan(t, seed) })
}
