package jwt

import (
	"testing"

	"sluice/internal/config"
)

func BenchmarkDecode(b *testing.B) {
	k := ring()
	for alg, key := range map[string]config.JWK{"RS256": {Public: &k.rsa.PublicKey}, "ES256": {Public: &k.ec["ES256"].PublicKey}, "HS256": {Secret: k.hmac}} {
		b.Run(alg, func(b *testing.B) {
			p := trusting("i")
			p.Keys, p.PayloadKey, p.Forward = []config.JWK{key}, "payload", true
			a := request(filterOf(of(0), p), "/", bearer(k.sign(`{"alg":"`+alg+`"}`, `{"iss":"i","sub":"user","aud":["b"],"exp":4102444800,"groups":["admin","dev"]}`, alg)))
			b.ReportAllocs()
			for b.Loop() {
				if got := a.outcome(); got != "ok" {
					b.Fatal(got)
				}
			}
		})
	}
}
