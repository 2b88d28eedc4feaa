package xdsclient

import (
	"errors"
	"iter"

	"sluice/internal/config"
	"sluice/xdsclient/link"
)

// errNamesAlone refuses a validation context in Envoy's words: who signs his own
// certificate has any name.
var errNamesAlone = errors.New("SAN-based verification of peer certificates without trusted CA is insecure and not allowed")

// checkSecret refuses a validation context without a CA if somebody who uses it
// looks at names. What served before goes on; internal/tlsconn makes no handshake
// by such a context either, whatever comes first.
func (c *Client) checkSecret(name string, s *config.Secret) error {
	if s.Validation == nil || s.Validation.HasTrustAnchor {
		return nil
	}
	var err error
	look := func(all iter.Seq[*config.TLSParams]) {
		for p := range all {
			v := p.Validation
			if v != nil && v.Ref.Name == name && v.Roots == nil && !v.SystemRoots && len(v.SANs)+len(s.Validation.SANs) > 0 {
				err = errNamesAlone
			}
		}
	}
	c.neededClusters(func(x *config.Cluster) { look(link.ClusterTLS(x)) })
	c.neededListeners(func(x *config.Listener) { look(link.ListenerTLS(x)) })
	return err
}
