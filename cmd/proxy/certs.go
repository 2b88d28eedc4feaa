package main

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"sluice/internal/config"
)

// certificate is envoy.admin.v3.CertificateDetails.
type certificate struct {
	Path    string              `json:"path"`
	Serial  string              `json:"serial_number"`
	SANs    []map[string]string `json:"subject_alt_names"`
	Days    string              `json:"days_until_expiration"`
	From    time.Time           `json:"valid_from"`
	Expires time.Time           `json:"expiration_time"`
}

func describe(x *x509.Certificate, path string) certificate {
	c := certificate{Path: cmp.Or(path, "<inline>"), Serial: x.SerialNumber.Text(16), SANs: []map[string]string{}, From: x.NotBefore, Expires: x.NotAfter,
		Days: strconv.Itoa(daysLeft(x))}
	for _, n := range x.DNSNames {
		c.SANs = append(c.SANs, map[string]string{"dns": n})
	}
	for _, u := range x.URIs {
		c.SANs = append(c.SANs, map[string]string{"uri": u.String()})
	}
	for _, ip := range x.IPAddresses {
		c.SANs = append(c.SANs, map[string]string{"ip_address": ip.String()})
	}
	return c
}

func daysLeft(x *x509.Certificate) int { return max(0, int(time.Until(x.NotAfter).Hours()/24)) }

// tlsContext is the certificates of one TLS context: its own, and its roots. It is
// an entry of the page.
type tlsContext struct {
	Roots []certificate `json:"ca_cert"`
	Chain []certificate `json:"cert_chain"`
}

// certs writes the certificates of every TLS context in force.
func (d *dumper) certs(w io.Writer) error {
	list := []tlsContext{}
	d.process.plane.eachTLS(func(own []*config.Secret, v *config.Validation) {
		c := tlsContext{[]certificate{}, []certificate{}}
		for _, s := range own {
			c.Chain = append(c.Chain, describe(s.Certificate.Leaf, s.ChainPath))
		}
		if v != nil {
			for _, x := range parsePEM(v.RootsPEM) {
				c.Roots = append(c.Roots, describe(x, v.RootsPath))
			}
		}
		list = append(list, c)
	})
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	enc.SetEscapeHTML(false)
	return enc.Encode(map[string]any{"certificates": list})
}

// eachTLS calls f for every TLS context whose secrets are there: listeners' in
// order, then clusters' by name.
func (p *plane) eachTLS(f func(own []*config.Secret, v *config.Validation)) {
	s := p.snapshot.Load()
	if s == nil {
		return
	}
	visit := func(t *config.TLSParams) {
		if own, v, ok := p.contextOf(t); ok {
			f(own, v)
		}
	}
	for _, l := range s.Listeners {
		for _, c := range l.Chains {
			if c.TLS != nil {
				visit(&c.TLS.TLSParams)
			}
		}
		if c := l.DefaultChain; c != nil && c.TLS != nil {
			visit(&c.TLS.TLSParams)
		}
	}
	clusters := s.Whole().Clusters // other endpoints are no other TLS
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		c := clusters[name]
		if c.TLS != nil {
			visit(&c.TLS.TLSParams)
		}
		for i := range c.SocketMatches {
			if t := c.SocketMatches[i].TLS; t != nil {
				visit(&t.TLSParams)
			}
		}
	}
}

// contextOf gives the secrets of t; ok is false while one is missing.
func (p *plane) contextOf(t *config.TLSParams) (own []*config.Secret, v *config.Validation, ok bool) {
	for i := range t.Certificates {
		s := p.find(&t.Certificates[i])
		if s == nil || s.Certificate == nil {
			return nil, nil, false
		}
		own = append(own, s)
	}
	if v = t.Validation; v != nil && v.Ref.Name != "" {
		s := p.find(&v.Ref)
		if s == nil || s.Validation == nil {
			return nil, nil, false
		}
		v = s.Validation
	}
	return own, v, true
}

func (p *plane) find(r *config.SecretRef) *config.Secret {
	if r.Inline != nil {
		return r.Inline
	}
	return p.secret(r.Name)
}

func parsePEM(b []byte) (out []*x509.Certificate) {
	for {
		var block *pem.Block
		if block, b = pem.Decode(b); block == nil {
			return out
		}
		if x, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, x)
		}
	}
}

// firstExpiry is in how many days the first certificate expires, Envoy's largest
// number when there is none.
func (p *plane) firstExpiry() uint64 {
	days := math.MaxUint32
	seen := map[*config.Validation]bool{} // most clusters share one
	p.eachTLS(func(own []*config.Secret, v *config.Validation) {
		for _, s := range own {
			days = min(days, daysLeft(s.Certificate.Leaf))
		}
		if v != nil && !seen[v] {
			seen[v] = true
			for _, x := range parsePEM(v.RootsPEM) {
				days = min(days, daysLeft(x))
			}
		}
	})
	return uint64(days)
}
