package nameserver

import (
	"math/rand/v2"
	"net/netip"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"sluice/internal/config"
)

// ttl of answers from the table, in seconds; istiod may change it at any time.
const ttl = 30

// table answers by host name, lower-case and with a dot at the end.
type table struct {
	hosts map[string][]netip.Addr
	wild  map[string][]netip.Addr // "*.example.com." by "example.com."
}

// newTable adds the short names that a Kubernetes service has in its cluster.
func newTable(t *config.NameTable, namespace, domain string) *table {
	out := &table{hosts: make(map[string][]netip.Addr), wild: make(map[string][]netip.Addr)}
	if t == nil {
		return out
	}
	for host, e := range t.Hosts {
		host = strings.ToLower(host)
		if parent, ok := strings.CutPrefix(host, "*."); ok {
			out.wild[parent+"."] = e.IPs
			continue
		}
		out.hosts[host+"."] = e.IPs
		if e.Registry != "Kubernetes" || e.Shortname == "" || !strings.HasSuffix(host, ".svc."+domain) {
			continue
		}
		name := e.Shortname + "." + e.Namespace
		out.hosts[name+"."], out.hosts[name+".svc."] = e.IPs, e.IPs
		if e.Namespace == namespace {
			out.hosts[e.Shortname+"."] = e.IPs
		}
	}
	return out
}

// find looks a host up: itself, then wildcards label by label.
func (t *table) find(host string) ([]netip.Addr, bool) {
	if ips, ok := t.hosts[host]; ok {
		return ips, true
	}
	for rest := host; ; {
		_, parent, ok := strings.Cut(rest, ".")
		if !ok || parent == "" {
			return nil, false
		}
		if ips, ok := t.wild[parent]; ok {
			return ips, true
		}
		rest = parent
	}
}

// query is what is asked.
type query struct {
	header   dnsmessage.Header
	question dnsmessage.Question
	size     int // of an answer that the client takes by UDP
}

// parse takes a message with one question.
func parse(b []byte) (query, bool) {
	var p dnsmessage.Parser
	var q query
	var err error
	if q.header, err = p.Start(b); err != nil || q.header.Response {
		return q, false
	}
	if q.question, err = p.Question(); err != nil {
		return q, false
	}
	q.size = 512
	if p.SkipAllQuestions() == nil && p.SkipAllAnswers() == nil && p.SkipAllAuthorities() == nil {
		for {
			h, err := p.AdditionalHeader()
			if err != nil {
				break
			}
			if h.Type == dnsmessage.TypeOPT {
				q.size = max(q.size, int(h.Class))
			}
			if p.SkipAdditional() != nil {
				break
			}
		}
	}
	return q, true
}

// answer gives the response when the table has the host; nil: others are to be
// asked. With the search domain behind a host the answer is its alias, so that a
// resolver needn't try the other domains.
func (t *table) answer(q query, search string, udp bool) []byte {
	kind := q.question.Type
	if kind != dnsmessage.TypeA && kind != dnsmessage.TypeAAAA || q.header.OpCode != 0 {
		return nil
	}
	host := strings.ToLower(q.question.Name.String())
	ips, ok := t.find(host)
	alias := ""
	if !ok && search != "" {
		if short, cut := strings.CutSuffix(host, "."+strings.ToLower(search)+"."); cut {
			alias = short + "."
			ips, ok = t.find(alias)
		}
	}
	if !ok {
		return nil
	}
	return respond(q, alias, family(ips, kind == dnsmessage.TypeAAAA), udp)
}

// family gives the addresses of a family in random order.
func family(ips []netip.Addr, six bool) []netip.Addr {
	var out []netip.Addr
	for _, ip := range ips {
		if ip = ip.Unmap(); ip.Is6() == six {
			out = append(out, ip)
		}
	}
	rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// respond writes a response; one that is too long for UDP is cut, and says so.
func respond(q query, alias string, ips []netip.Addr, udp bool) []byte {
	h := dnsmessage.Header{ID: q.header.ID, Response: true, Authoritative: true, RecursionDesired: q.header.RecursionDesired, RecursionAvailable: true}
	b, err := build(h, q.question, alias, ips)
	if err != nil {
		return nil
	}
	if udp && len(b) > q.size {
		h.Truncated = true
		for len(ips) > 0 && len(b) > q.size {
			ips = ips[:len(ips)*q.size/(len(b)+1)]
			if b, err = build(h, q.question, alias, ips); err != nil {
				return nil
			}
		}
	}
	return b
}

func build(h dnsmessage.Header, question dnsmessage.Question, alias string, ips []netip.Addr) ([]byte, error) {
	m := dnsmessage.NewBuilder(nil, h)
	m.EnableCompression()
	if err := m.StartQuestions(); err != nil {
		return nil, err
	}
	if err := m.Question(question); err != nil {
		return nil, err
	}
	if err := m.StartAnswers(); err != nil {
		return nil, err
	}
	r := dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: ttl}
	if alias != "" {
		name, err := dnsmessage.NewName(alias)
		if err != nil {
			return nil, err
		}
		if err := m.CNAMEResource(r, dnsmessage.CNAMEResource{CNAME: name}); err != nil {
			return nil, err
		}
		r.Name = name
	}
	for _, ip := range ips {
		var err error
		if ip.Is4() {
			err = m.AResource(r, dnsmessage.AResource{A: ip.As4()})
		} else {
			err = m.AAAAResource(r, dnsmessage.AAAAResource{AAAA: ip.As16()})
		}
		if err != nil {
			return nil, err
		}
	}
	return m.Finish()
}

// failure is SERVFAIL for a query, nil if it isn't one.
func failure(b []byte) []byte {
	q, ok := parse(b)
	if !ok {
		return nil
	}
	m := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: q.header.ID, Response: true, RecursionDesired: q.header.RecursionDesired, RCode: dnsmessage.RCodeServerFailure})
	if m.StartQuestions() != nil || m.Question(q.question) != nil {
		return nil
	}
	out, err := m.Finish()
	if err != nil {
		return nil
	}
	return out
}
