package tlsconn

import (
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"testing"
	"time"

	"sluice/internal/config"
)

// TestTrustEndsWithItsRevocationList: a chain that was found good is looked at
// again once nobody knows whether it was revoked.
func TestTrustEndsWithItsRevocationList(t *testing.T) {
	ca := newAuthority(t, "ca")
	soon := time.Now().Truncate(time.Second).Add(2 * time.Second)
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: soon}, ca.cert, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		t.Fatal(err)
	}
	v := &verifier{roots: ca.pool, crls: []*x509.RevocationList{list}, depth: 100}
	peers := []*x509.Certificate{ca.issue(t, leaf{id: "spiffe://a/b"}).Leaf}
	if _, e := v.check(peers, true, "", false); e != nil {
		t.Fatal(e)
	}
	time.Sleep(time.Until(soon) + 10*time.Millisecond)
	if _, e := v.check(peers, true, "", false); e == nil {
		t.Error("the chain is trusted still")
	}
}

// TestNamesAloneProveNothing: without a CA anybody can have any name, however the
// context comes together.
func TestNamesAloneProveNothing(t *testing.T) {
	ca := newAuthority(t, "ca")
	names := []config.SANMatch{{Type: config.SANURI, Match: config.StringMatch{Value: "spiffe://a/b"}}}
	secret := func(v *config.Validation) *config.Secret { return &config.Secret{Validation: v} }
	own, pinned := [32]byte{1}, &config.Validation{SPKI: [][32]byte{{1}}, SANs: names}
	for _, c := range []struct {
		rule     string
		context  config.Validation
		secret   *config.Secret
		refused  bool
		verified bool
	}{
		{"names, and a secret with nothing", config.Validation{SANs: names}, secret(&config.Validation{}), true, false},
		{"a secret with names", config.Validation{}, secret(&config.Validation{SANs: names}), true, false},
		{"names and pins", config.Validation{SANs: names}, secret(pinned), true, false},
		{"names though untrusted is accepted", config.Validation{SANs: names, AcceptUntrust: true}, secret(&config.Validation{}), true, false},
		{"names, and a secret with a CA", config.Validation{SANs: names}, secret(&config.Validation{Roots: ca.pool}), false, true},
		{"names and a CA, and a secret with nothing", config.Validation{SANs: names, Roots: ca.pool}, secret(&config.Validation{}), false, true},
		{"a secret with names and a CA", config.Validation{}, secret(&config.Validation{SANs: names, Roots: ca.pool}), false, true},
		{"the system's roots", config.Validation{SANs: names, SystemRoots: true}, secret(&config.Validation{}), false, true},
		{"the system's roots by a secret", config.Validation{SANs: names}, secret(&config.Validation{SystemRoots: true}), false, true},
		{"pins alone", config.Validation{}, secret(&config.Validation{SPKI: [][32]byte{own}}), false, true},
		{"nothing at all", config.Validation{}, secret(&config.Validation{}), false, false},
	} {
		c.context.Ref.Name = "roots"
		v, missing, err := newVerifier(&c.context, c.secret, false)
		if (err != nil) != c.refused || missing != c.refused || (v != nil) != c.verified {
			t.Errorf("%s: verifier %v, missing %v, %v", c.rule, v != nil, missing, err)
		}
		if v == nil || v.roots == nil {
			continue
		}
		self := newAuthority(t, "self").issue(t, leaf{id: "spiffe://a/b"})
		if _, e := v.check([]*x509.Certificate{self.Leaf}, true, "", false); e == nil {
			t.Errorf("%s: a stranger with the name is let in", c.rule)
		}
	}
}

// TestAnUnsafeContextReplacesNoGoodOne: what verified before does so still, and
// without anything before nobody gets in.
func TestAnUnsafeContextReplacesNoGoodOne(t *testing.T) {
	ca := newAuthority(t, "ca")
	good, empty := &config.Secret{Validation: &config.Validation{Roots: ca.pool}}, &config.Secret{Validation: &config.Validation{}}
	roots := empty
	x := NewServerContext(&config.DownstreamTLS{RequireClientCert: true, TLSParams: config.TLSParams{
		Certificates: inline(ca.issue(t, leaf{dns: "a"})),
		Validation:   &config.Validation{Ref: config.SecretRef{Name: "roots"}, SANs: []config.SANMatch{{Match: config.StringMatch{Value: "spiffe://a/b"}}}},
	}}, func(string) *config.Secret { return roots })
	if x.Ready() {
		t.Fatal("ready without a CA")
	}
	roots = good
	if !x.Ready() || x.current().verifier.roots != ca.pool || x.Updates() != 1 {
		t.Fatalf("a good context doesn't come into use; %d updates", x.Updates())
	}
	roots = &config.Secret{Validation: &config.Validation{}}
	if m := x.current(); !x.Ready() || m.verifier == nil || m.verifier.roots != ca.pool || m != x.current() || x.Updates() != 1 {
		t.Errorf("the good context is lost; %d updates", x.Updates())
	}
	if roots = good; !x.Ready() || x.current().verifier.roots != ca.pool {
		t.Error("it doesn't come back")
	}
}
