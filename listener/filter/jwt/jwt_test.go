package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/upstream/call"
)

// noon is when the tests take place.
const noon = 1_800_000_000

// terminal notes what a filter does, and answers fetches when it is told to.
type terminal struct {
	reply    *filter.Reply
	resumed  bool
	rerouted bool
	asked    []*call.Request
	answer   func(code int, body []byte)
	at       func(done func(int, []byte)) // answers at once
	cancels  int
}

func (t *terminal) Reply(r filter.Reply)                   { t.reply = &r }
func (t *terminal) Resume()                                { t.resumed = true }
func (t *terminal) ClearRoute()                            { t.rerouted = true }
func (t *terminal) Cluster(string) *config.Cluster         { return nil }
func (t *terminal) Members(string) (a, total int, ok bool) { return 0, 0, false }
func (t *terminal) Call(r *call.Request, done func(*call.Answer)) func() {
	t.asked = append(t.asked, r)
	answer := func(code int, body []byte) { done(&call.Answer{Status: code, Body: body}) }
	if t.at != nil {
		t.at(answer)
	} else {
		t.answer = answer
	}
	return func() { t.cancels++ }
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// keyring has a key of each kind.
type keyring struct {
	rsa  *rsa.PrivateKey
	ec   map[string]*ecdsa.PrivateKey
	ed   ed25519.PrivateKey
	hmac []byte
}

var ring = sync.OnceValue(func() *keyring {
	k := &keyring{ec: map[string]*ecdsa.PrivateKey{}, hmac: []byte("secret")}
	k.rsa, _ = rsa.GenerateKey(rand.Reader, 2048)
	for alg, c := range map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()} {
		k.ec[alg], _ = ecdsa.GenerateKey(c, rand.Reader)
	}
	_, k.ed, _ = ed25519.GenerateKey(rand.Reader)
	return k
})

// sign signs as alg says, with the ring's key for it.
func (k *keyring) sign(head, payload, alg string) string {
	t := &token{signed: b64([]byte(head)) + "." + b64([]byte(payload)), algorithm: alg}
	hash, digest := crypto.SHA256, []byte(nil)
	if alg != "EdDSA" {
		hash, digest = t.digest()
	}
	var s []byte
	switch alg[:2] {
	case "RS":
		s, _ = rsa.SignPKCS1v15(rand.Reader, k.rsa, hash, digest)
	case "PS":
		s, _ = rsa.SignPSS(rand.Reader, k.rsa, hash, digest, nil)
	case "ES":
		r, v, _ := ecdsa.Sign(rand.Reader, k.ec[alg], digest)
		n := curveSize(alg)
		s = append(r.FillBytes(make([]byte, n)), v.FillBytes(make([]byte, n))...)
	case "HS":
		s = t.code(k.hmac)
	default:
		s = ed25519.Sign(k.ed, []byte(t.signed))
	}
	return t.signed + "." + b64(s)
}

// hs signs a payload with the secret.
func hs(payload string) string { return ring().sign(`{"alg":"HS256"}`, payload, "HS256") }

func secret() []config.JWK { return []config.JWK{{Secret: ring().hmac}} }

// forged is a token that is signed by somebody else.
func forged(payload string) string {
	other := &keyring{hmac: []byte("other")}
	return other.sign(`{"alg":"HS256"}`, payload, "HS256")
}

// ask is one request: "name: value" lines, and the path.
type ask struct {
	f    *Filter
	term terminal
	x    *filter.Exchange
	slot filter.Slot
}

func request(f *Filter, path string, lines ...string) *ask {
	a := &ask{f: f}
	h := &httpmsg.Head{}
	h.SetMethod([]byte("GET"))
	h.SetPath([]byte(path))
	h.SetAuthority([]byte("svc"))
	h.SetString(httpmsg.XForwardedProto, "http")
	for _, l := range lines {
		name, v, _ := strings.Cut(l, ": ")
		h.Add([]byte(name), []byte(v))
	}
	a.x = &filter.Exchange{Request: h, Record: &telemetry.Record{Wall: time.Unix(noon, 0)}, Stats: telemetry.NewSet().Add("http", "in", nil)}
	a.x.Bind(&a.term)
	return a
}

// outcome is "ok" or the status and text of the reply.
func (a *ask) outcome() string {
	switch a.f.Decode(a.x, &a.slot) {
	case filter.Continue:
		return "ok"
	case filter.Park:
		return "parked"
	}
	return fmt.Sprint(a.term.reply.Status, " ", a.term.reply.Body)
}

func bearer(token string) string { return "authorization: Bearer " + token }

// provider with the usual places and the secret.
func trusting(issuer string) config.JWTProvider {
	return config.JWTProvider{Issuer: issuer, Keys: secret(), ClockSkew: 60,
		Headers: []config.JWTHeader{{Name: "authorization", Prefix: "Bearer "}}, Params: []string{"access_token"}}
}

func filterOf(need config.JWTRequirement, providers ...config.JWTProvider) *Filter {
	return New(&config.JWT{Providers: providers, Rules: []config.JWTRule{{Match: config.RouteMatch{Path: "/"}, Requires: &need}}})
}

func of(i int) config.JWTRequirement { return config.JWTRequirement{Provider: i} }

func group(op config.JWTOp, sub ...config.JWTRequirement) config.JWTRequirement {
	return config.JWTRequirement{Op: op, Sub: sub}
}

func TestEveryAlgorithmAndOnlyWithItsKey(t *testing.T) {
	k := ring()
	all := []config.JWK{{Public: &k.rsa.PublicKey}, {Public: k.ed.Public()}, {Secret: k.hmac}}
	for _, e := range k.ec {
		all = append(all, config.JWK{Public: &e.PublicKey})
	}
	for _, alg := range []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "HS256", "HS384", "HS512"} {
		text := k.sign(`{"alg":"`+alg+`"}`, `{}`, alg)
		tok, s := parse(text)
		if s != ok {
			t.Fatalf("%s: %s", alg, s.text())
		}
		good := 0
		for i := range all {
			if signedBy(tok, &all[i]) {
				good++
			}
		}
		if s := verify(tok, all); s != ok || good != 1 {
			t.Errorf("%s: %s, %d of %d keys verify it", alg, s.text(), good, len(all))
		}
		for i := range tok.signature {
			tok.signature[i] ^= 1
			if i%16 == 0 && verify(tok, all) == ok {
				t.Errorf("%s: byte %d of the signature doesn't count", alg, i)
			}
			tok.signature[i] ^= 1
		}
	}
}

func TestKeysSayWhatTheyAreGoodFor(t *testing.T) {
	k := ring()
	public := k.rsa.N.Bytes()
	asSecret := (&keyring{hmac: public}).sign(`{"alg":"HS256"}`, `{}`, "HS256")
	es := k.sign(`{"alg":"ES256","kid":"a"}`, `{}`, "ES256")
	p256 := &k.ec["ES256"].PublicKey
	longer, _ := parse(es)
	longer.signature = append([]byte{0}, append(longer.signature[:32:32], append([]byte{0}, longer.signature[32:]...)...)...)
	for _, c := range []struct {
		rule string
		text string
		key  config.JWK
		want status
	}{
		{"an RSA key is no secret", asSecret, config.JWK{Public: &k.rsa.PublicKey}, unverified},
		{"nor one for another algorithm", asSecret, config.JWK{Public: &k.rsa.PublicKey, Algorithm: "RS256"}, noKey},
		{"another key id is another key", es, config.JWK{Public: p256, ID: "b"}, noKey},
		{"the same is this one", es, config.JWK{Public: p256, ID: "a"}, ok},
		{"one without id may be", es, config.JWK{Public: p256}, ok},
		{"another algorithm is another key", es, config.JWK{Public: p256, Algorithm: "ES384"}, noKey},
		{"another curve is too", es, config.JWK{Public: &k.ec["ES384"].PublicKey}, unverified},
		{"a secret is no curve", es, config.JWK{Secret: k.hmac}, unverified},
	} {
		tok, s := parse(c.text)
		if s == ok {
			s = verify(tok, []config.JWK{c.key})
		}
		if s != c.want {
			t.Errorf("%s: %s, want %s", c.rule, s.text(), c.want.text())
		}
	}
	if s := verify(longer, []config.JWK{{Public: p256}}); s != unverified {
		t.Errorf("a signature with zeros before r and s: %s", s.text())
	}
	if r := new(big.Int); !hmac.Equal(r.Bytes(), nil) || verify(longer, nil) != noKeys {
		t.Error("no keys")
	}
}
