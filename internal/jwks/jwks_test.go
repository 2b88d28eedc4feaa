package jwks

import (
	"encoding/json"
	"strings"
	"testing"
)

const (
	ecX    = "kb9NaMUJn5iQdFOy_ybnfUH-zD_5wNvcFGg5f9A_cGA"
	ecY    = "VGpb8pisGNiExJSYYG5q08vriT4Zt_jpe2d7oJBodNE"
	edX    = "bWdoVcNkEnlrtYsLNeGSeDNf6rxrHJ9ZeQUNFcZkDYI"
	rsaN   = "t8NGH8ERBf1YUkayBQSbkYSOWdb_9dUHTmZQt3oYlStVrJo1CKllrlv5ayO-3DhPZBxAwi3yTsRNDfB-ONQE7msauA9bzE6Pz_0usB92FkIiFe71agk_xHpYfKVSKHvGWpahTW1cIj0PmENpoNcFqn9LPD1eyg3b0W48WKJ2bIKrMottDat6NIBKmcUb7uKRuBUqRTvILZw_4hmgMKqp7ORFRd1-jTdGpIHbzREFemgNVjcDfLMXm04Ah_2NmNBQ9N8LawGNyPRUiXe0l92MTCTkGJsxNvMhVtvrS-vwlAa0HmKEsIcRx7M7DAMdbdM2zeou5lOeUW57T4GR0W56nQ"
	ec     = `"kty":"EC","crv":"P-256","x":"` + ecX + `","y":"` + ecY + `"`
	rsaKey = `"kty":"RSA","e":"AQAB","n":"` + rsaN + `"`
	okp    = `"kty":"OKP","crv":"Ed25519","x":"` + edX + `"`
	pair   = `"x":"` + ecX + `","y":"` + ecY + `"`
	badRS  = "Jwks RSA [n] or [e] field is missing or has a parse error"
)

// What Envoy 1.40 says of the same sets.
func TestOneKey(t *testing.T) {
	for _, c := range []struct{ rule, key, want string }{
		{"a key has a type", `"kid":"a"`, "[kty] is missing in [keys]"},
		{"which is a string", `"kty":1`, "[kty] is bad in [keys]"},
		{"and known", `"kty":"new"`, "[kty] is not supported in [keys]"},
		{"an EC key", ec, ""},
		{"is of P-256 without a word", `"kty":"EC",` + pair, ""},
		{"or of another curve that is known", `"kty":"EC","crv":"P-999",` + pair, "[crv] or [alg] field is not supported for an EC key"},
		{"its algorithm fits the curve", ec + `,"alg":"ES384"`, "[crv] field specified is not compatible with [alg] for an EC key"},
		{"and the type", ec + `,"alg":"RS256"`, "[alg] is not started with [ES] for an EC key"},
		{"an algorithm that is no text is none", ec + `,"alg":1`, ""},
		{"nor is a key id", ec + `,"kid":1`, ""},
		{"it has both coordinates", `"kty":"EC","x":"` + ecX + `"`, "[y] field is missing for an EC key"},
		{"in base64url", `"kty":"EC","x":"!!","y":"` + ecY + `"`, "Jwks EC [x] or [y] field is an invalid Base64."},
		{"with padding too", `"kty":"EC","x":"` + ecX + `=","y":"` + ecY + `"`, ""},
		{"on the curve", `"kty":"EC","x":"` + ecY + `","y":"` + ecY + `"`, "Jwks EC [x] and [y] fields have a parse error."},
		{"and no longer than its field", `"kty":"EC","x":"` + ecX + ecX + `","y":"` + ecY + `"`, "Jwks EC [x] and [y] fields have a parse error."},
		{"an RSA key", rsaKey, ""},
		{"of PKCS1 or PSS", rsaKey + `,"alg":"PS384"`, ""},
		{"never a secret", rsaKey + `,"alg":"HS256"`, "[alg] is not started with [RS] or [PS] for an RSA key"},
		{"has an exponent", `"kty":"RSA","n":"` + rsaN + `"`, "[e] field is missing for a RSA key"},
		{"of more than 1", `"kty":"RSA","e":"AQ","n":"` + rsaN + `"`, badRS},
		{"that is odd", `"kty":"RSA","e":"AQAC","n":"` + rsaN + `"`, badRS},
		{"and not huge", `"kty":"RSA","e":"AQABAQABAQAB","n":"` + rsaN + `"`, badRS},
		{"a modulus that is long enough", `"kty":"RSA","e":"AQAB","n":"AQAB"`, badRS},
		{"and not too long", `"kty":"RSA","e":"AQAB","n":"` + strings.Repeat("x", 4000) + `"`, badRS},
		{"standard base64 is another alphabet", `"kty":"RSA","e":"AQAB","n":"` + strings.ReplaceAll(rsaN, "_", "/") + `"`, badRS},
		{"an Ed25519 key", okp, ""},
		{"names its curve", `"kty":"OKP","x":"` + edX + `"`, "[crv] field is missing for an OKP key"},
		{"no other curve", `"kty":"OKP","crv":"Ed448","x":"` + edX + `"`, "[crv] field is not supported for an OKP key"},
		{"has 32 bytes", `"kty":"OKP","crv":"Ed25519","x":"AQAB"`, "Jwks OKP [x] field is wrong length."},
		{"and one algorithm", okp + `,"alg":"ES256"`, "[alg] is not [EdDSA] for an OKP key"},
		{"a secret", `"kty":"oct","k":"c2VjcmV0"`, ""},
		{"is not empty", `"kty":"oct","k":""`, "Jwks Oct key is an invalid Base64"},
		{"nor absent", `"kty":"oct"`, "[k] field is missing for an HMAC key"},
		{"nor a public key", `"kty":"oct","k":"c2VjcmV0","alg":"RS256"`, "[alg] does not start with [HS] for an HMAC key"},
	} {
		keys, err := Parse([]byte(`{"keys":[{` + c.key + `}]}`))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want || (len(keys) == 1) != (err == nil) {
			t.Errorf("%s: %q, want %q", c.rule, got, c.want)
		}
	}
}

func TestSets(t *testing.T) {
	none := "Jwks doesn't have any valid public key"
	for _, c := range []struct {
		rule, set, want string
		keys            int
	}{
		{"text", "junk", "Jwks is an invalid JSON", 0},
		{"a PEM key", "-----BEGIN PUBLIC KEY-----", "Jwks is an invalid JSON", 0},
		{"a list", "[]", "Jwks is an invalid JSON", 0},
		{"more than one value", `{"keys":[{` + ec + `}]} x`, "Jwks is an invalid JSON", 0},
		{"a name twice", `{"keys":[],"keys":[{` + ec + `}]}`, "Jwks is an invalid JSON", 0},
		{"no keys field", "{}", "Jwks does not have [keys] field", 0},
		{"keys that are no list", `{"keys":1}`, "[keys] in Jwks is not an array", 0},
		{"no keys", `{"keys":[]}`, none, 0},
		{"keys that are no objects", `{"keys":[1]}`, none, 0},
		{"a bad key beside a good one", `{"keys":[{"kty":"new"},{` + ec + `},{` + rsaKey + `}]}`, "", 2},
	} {
		keys, err := Parse([]byte(c.set))
		if got := errorText(err); got != c.want || len(keys) != c.keys {
			t.Errorf("%s: %q and %d keys, want %q and %d", c.rule, got, len(keys), c.want, c.keys)
		}
	}
}

func errorText(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func TestObjects(t *testing.T) {
	deep := func(n int) string { return `{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}" }
	for text, good := range map[string]bool{
		`{}`: true, ` {"a" : [1, "b", null, true, {"c": {}}]} `: true, deep(99): true,
		deep(100): false, deep(1_000_000): false, strings.Repeat("[", 1_000_000): false,
		`{"a":1,"a":1}`: false, `{"b":{"a":1,"a":1}}`: false, `{"a":1,"\u0061":1}`: false,
		`{"a":"\ud83d\ude00 \\ud800 \\\\u"}`: true, `{"a":"\ud800"}`: false, `{"a":"\udc00\ud800"}`: false, `{"\ud83d\u0061":1}`: false, `{"a":"\ud800`: false,
		`[]`: false, `1`: false, ``: false, `{"a":1e999}`: false, `{"a":01}`: false, `{"a":NaN}`: false, `{a:1}`: false,
		`{"a":1,}`: false, `{'a':1}`: false, `{} {}`: false, `{"a"}`: false, `{"a":}`: false, "{\"a\":\"\xff\"}": false, "\ufeff{}": false,
	} {
		if _, err := Object([]byte(text)); (err == nil) != good {
			t.Errorf("%.60s: %v", text, err)
		}
	}
}

func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"a":[1,"b",null,true,{"c":{}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := Object(b); err == nil && !json.Valid(b) {
			t.Errorf("%q is no JSON", b)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"keys":[{` + ec + `},{` + rsaKey + `},{` + okp + `},{"kty":"oct","k":"c2VjcmV0"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, err := Parse(b)
		if (len(keys) > 0) != (err == nil) {
			t.Errorf("%d keys and %v", len(keys), err)
		}
		for _, k := range keys {
			if (k.Public == nil) != (len(k.Secret) > 0) {
				t.Errorf("a key of no kind: %+v", k)
			}
		}
	})
}
