package tlsconn

import (
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"testing"
	"time"
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
