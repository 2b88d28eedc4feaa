package jwt

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"hash"
	"math/big"

	"sluice/internal/config"
)

// family is the kind of an algorithm that is known, "" for all others: "none" is
// one of these.
func family(algorithm string) string {
	switch algorithm {
	case "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "HS256", "HS384", "HS512":
		return algorithm[:2]
	case "EdDSA":
		return algorithm
	}
	return ""
}

func hashOf(algorithm string) (crypto.Hash, func() hash.Hash) {
	switch algorithm[2:] {
	case "384":
		return crypto.SHA384, sha512.New384
	case "512":
		return crypto.SHA512, sha512.New
	}
	return crypto.SHA256, sha256.New
}

// verify looks for a key that the token was signed with. The key says what it is
// good for, never the token: one with an RSA key is not tried as a secret.
func verify(t *token, keys []config.JWK) status {
	if len(keys) == 0 {
		return noKeys
	}
	result := noKey
	for i := range keys {
		k := &keys[i]
		if t.keyID != "" && k.ID != "" && t.keyID != k.ID || k.Algorithm != "" && k.Algorithm != t.algorithm {
			continue
		}
		if signedBy(t, k) {
			return ok
		}
		result = unverified
		if _, isEd := k.Public.(ed25519.PublicKey); isEd && len(t.signature) != ed25519.SignatureSize {
			result = badEdLength
		}
	}
	return result
}

func signedBy(t *token, k *config.JWK) bool {
	kind := family(t.algorithm)
	switch p := k.Public.(type) {
	case *rsa.PublicKey:
		return byRSA(t, p, kind)
	case *ecdsa.PublicKey:
		return kind == "ES" && byEC(t, p)
	case ed25519.PublicKey:
		return kind == "EdDSA" && len(t.signature) == ed25519.SignatureSize && ed25519.Verify(p, []byte(t.signed), t.signature)
	case nil:
		return kind == "HS" && len(k.Secret) > 0 && hmac.Equal(t.signature, t.code(k.Secret))
	}
	return false
}

func (t *token) digest() (crypto.Hash, []byte) {
	name, newHash := hashOf(t.algorithm)
	d := newHash()
	d.Write([]byte(t.signed))
	return name, d.Sum(nil)
}

func (t *token) code(secret []byte) []byte {
	_, newHash := hashOf(t.algorithm)
	m := hmac.New(newHash, secret)
	m.Write([]byte(t.signed))
	return m.Sum(nil)
}

func byRSA(t *token, k *rsa.PublicKey, kind string) bool {
	hash, digest := t.digest()
	switch kind {
	case "RS":
		return rsa.VerifyPKCS1v15(k, hash, digest, t.signature) == nil
	case "PS":
		return rsa.VerifyPSS(k, hash, digest, t.signature, &rsa.PSSOptions{SaltLength: rsa.PSSSaltLengthAuto, Hash: hash}) == nil
	}
	return false
}

// byEC verifies r and s, each as long as the curve's field (RFC 7518, section
// 3.4); each curve has its own algorithm.
func byEC(t *token, k *ecdsa.PublicKey) bool {
	size := (k.Curve.Params().BitSize + 7) / 8
	if len(t.signature) != 2*size || curveSize(t.algorithm) != size {
		return false
	}
	_, digest := t.digest()
	r, s := new(big.Int).SetBytes(t.signature[:size]), new(big.Int).SetBytes(t.signature[size:])
	return ecdsa.Verify(k, digest, r, s)
}

func curveSize(algorithm string) int {
	switch algorithm {
	case "ES256":
		return 32
	case "ES384":
		return 48
	}
	return 66
}
