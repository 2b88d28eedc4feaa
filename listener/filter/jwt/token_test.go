package jwt

import (
	"strings"
	"testing"
	"time"

	"sluice/internal/config"
)

func TestTokensThatAreNone(t *testing.T) {
	const head = `{"alg":"HS256"}`
	good := hs(`{"iss":"i"}`)
	part := strings.Split(good, ".")
	signed := func(head, payload string) string { return ring().sign(head, payload, "HS256") }
	for _, c := range []struct {
		rule, text string
		want       status
	}{
		{"a good one", good, ok},
		{"nothing", "", badFormat},
		{"a word", "abc", badFormat},
		{"two parts", part[0] + "." + part[1], badFormat},
		{"four", good + ".x", badFormat},
		{"a dot behind", good + ".", badFormat},
		{"a dot before", "." + good, badFormat},
		{"no signature", part[0] + "." + part[1] + ".", badFormat},
		{"no payload", part[0] + ".." + part[2], badFormat},
		{"only dots", strings.Repeat(".", 1_000_000), badFormat},
		{"a head that is no base64", "!." + part[1] + "." + part[2], badHeaderBase64},
		{"a payload that is none", part[0] + ".!." + part[2], badPayloadBase64},
		{"a signature that is none", part[0] + "." + part[1] + ".!", badSignatureBase64},
		{"a line break in it", part[0] + "." + part[1] + "." + part[2][:4] + "\n" + part[2][4:], badSignatureBase64},
		{"standard base64", part[0] + "." + part[1] + ".ab+/", badSignatureBase64},
		{"a head that is no JSON", signed("nope", "{}"), badHeaderJSON},
		{"a payload that is none", signed(head, "nope"), badPayloadJSON},
		{"a list for a payload", signed(head, "[]"), badPayloadJSON},
		{"a claim twice", signed(head, `{"exp":1,"exp":4102444800}`), badPayloadJSON},
		{"an algorithm twice", signed(`{"alg":"none","alg":"HS256"}`, "{}"), badHeaderJSON},
		{"deep nesting", signed(head, `{"a":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+"}"), badPayloadJSON},
		{"no algorithm", signed("{}", "{}"), badAlgorithm},
		{"an algorithm that is no text", signed(`{"alg":1}`, "{}"), badAlgorithm},
		{"the algorithm none", signed(`{"alg":"none"}`, "{}"), unknownAlgorithm},
		{"in capitals", signed(`{"alg":"NONE"}`, "{}"), unknownAlgorithm},
		{"an unknown one", signed(`{"alg":"HS1"}`, "{}"), unknownAlgorithm},
		{"in another case", signed(`{"alg":"hs256"}`, "{}"), unknownAlgorithm},
		{"a key id that is no text", signed(`{"alg":"HS256","kid":1}`, "{}"), badKeyID},
		{"an issuer that is none", signed(head, `{"iss":7}`), issuerNotString},
		{"or null", signed(head, `{"iss":null}`), issuerNotString},
		{"a subject", signed(head, `{"sub":7}`), subjectNotString},
		{"an id", signed(head, `{"jti":7}`), idNotString},
		{"an expiration in text", signed(head, `{"exp":"4102444800"}`), expiresNotInteger},
		{"a negative one", signed(head, `{"exp":-1}`), expiresOutOfRange},
		{"of more than 64 bits", signed(head, `{"exp":18446744073709551616}`), expiresOutOfRange},
		{"huge", signed(head, `{"exp":1e30}`), expiresOutOfRange},
		{"no number at all", signed(head, `{"exp":1e999}`), badPayloadJSON},
		{"not before in text", signed(head, `{"nbf":"soon"}`), notBeforeNotInteger},
		{"or negative", signed(head, `{"nbf":-5}`), notBeforeOutOfRange},
		{"issued in text", signed(head, `{"iat":"x"}`), issuedNotInteger},
		{"or negative", signed(head, `{"iat":-1}`), issuedOutOfRange},
		{"audiences that are no text", signed(head, `{"aud":["b",5]}`), audienceNotString},
		{"or null", signed(head, `{"aud":null}`), audienceNotString},
		{"a fraction of a second", signed(head, `{"exp":4102444800.5}`), ok},
		{"padding", signed(head, `{}`) + "=", ok},
	} {
		if _, got := parse(c.text); got != c.want {
			t.Errorf("%s: %s, want %s", c.rule, got.text(), c.want.text())
		}
	}
}

func TestClaims(t *testing.T) {
	day := 24 * time.Hour
	plain := config.JWTProvider{ClockSkew: 60}
	lasting := config.JWTProvider{ClockSkew: 60, MaxLifetime: &day}
	for _, c := range []struct {
		rule, payload string
		p             config.JWTProvider
		want          status
	}{
		{"no expiration", `{}`, plain, ok},
		{"the skew is in the token's favour", `{"exp":1799999940}`, plain, ok},
		{"and no more", `{"exp":1799999939}`, plain, expired},
		{"so for its begin", `{"nbf":1800000060}`, plain, ok},
		{"and no more", `{"nbf":1800000061}`, plain, notYetValid},
		{"an end near the last number doesn't wrap", `{"exp":18446744073709549568}`, config.JWTProvider{ClockSkew: 4_000_000_000}, ok},
		{"zero is no expiration", `{"exp":0}`, plain, ok},
		{"but none where one must be", `{"exp":0}`, config.JWTProvider{RequireExpiration: true}, unverified},
		{"it must", `{}`, config.JWTProvider{RequireExpiration: true}, unverified},
		{"and is", `{"exp":1800000001}`, config.JWTProvider{RequireExpiration: true}, ok},
		{"a lifetime needs an end", `{}`, lasting, unverified},
		{"that is near", `{"exp":1800086400}`, lasting, ok},
		{"enough", `{"exp":1800086401}`, lasting, unverified},
		{"from now, not from when it was issued", `{"exp":1800086401,"iat":1800000060}`, lasting, unverified},
		{"one of the audiences", `{"aud":["z","b"]}`, config.JWTProvider{Audiences: []string{"a", "b"}}, ok},
		{"a missing one is another", `{}`, config.JWTProvider{Audiences: []string{"a"}}, badAudience},
		{"so is an empty list", `{"aud":[]}`, config.JWTProvider{Audiences: []string{"a"}}, badAudience},
		{"scheme and slash don't count", `{"aud":"https://a/"}`, config.JWTProvider{Audiences: []string{"http://a"}}, ok},
		{"a scheme is no audience", `{"aud":"http://"}`, config.JWTProvider{Audiences: []string{"a"}}, badAudience},
		{"the subject", `{"sub":"x"}`, config.JWTProvider{Subject: &config.StringMatch{Value: "s"}}, unverified},
		{"must be", `{"sub":"s"}`, config.JWTProvider{Subject: &config.StringMatch{Value: "s"}}, ok},
		{"time tells before audience", `{"aud":"z","exp":5}`, config.JWTProvider{Audiences: []string{"a"}}, expired},
	} {
		tok, s := parse(hs(c.payload))
		if s == ok {
			s = newProvider(&c.p).claims(tok, noon, nil)
		}
		if s != c.want {
			t.Errorf("%s: %s, want %s", c.rule, s.text(), c.want.text())
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(hs(`{"iss":"i","aud":["a"],"exp":4102444800}`))
	f.Fuzz(func(t *testing.T, text string) {
		tok, s := parse(text)
		if (tok != nil) != (s == ok) {
			t.Fatalf("%q: %v and %s", text, tok, s.text())
		}
		if s == ok && (family(tok.algorithm) == "" || !strings.HasPrefix(text, tok.signed+".") || verify(tok, []config.JWK{{Secret: []byte("never")}}) == ok) {
			t.Errorf("%q was taken for a token", text)
		}
	})
}
