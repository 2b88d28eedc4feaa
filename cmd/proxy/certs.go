package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math"
	"strconv"
	"time"
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

func describe(x *x509.Certificate) certificate {
	c := certificate{Path: "<inline>", Serial: x.SerialNumber.Text(16), SANs: []map[string]string{}, From: x.NotBefore, Expires: x.NotAfter,
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

// certs writes the certificates and roots of the secrets in force.
func (d *dumper) certs(w io.Writer) error {
	type entry struct {
		Roots []certificate `json:"ca_cert"`
		Chain []certificate `json:"cert_chain"`
	}
	list := []entry{}
	for _, s := range d.process.plane.allSecrets() {
		e := entry{[]certificate{}, []certificate{}}
		if s.Certificate != nil && s.Certificate.Leaf != nil {
			e.Chain = append(e.Chain, describe(s.Certificate.Leaf))
		}
		if s.Validation != nil {
			for _, x := range parsePEM(s.Validation.RootsPEM) {
				e.Roots = append(e.Roots, describe(x))
			}
		}
		if len(e.Chain)+len(e.Roots) > 0 {
			list = append(list, e)
		}
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(map[string]any{"certificates": list})
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
	for _, s := range p.allSecrets() {
		if s.Certificate != nil && s.Certificate.Leaf != nil {
			days = min(days, daysLeft(s.Certificate.Leaf))
		}
	}
	return uint64(days)
}
