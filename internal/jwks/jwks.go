// Package jwks reads JSON Web Key Sets (RFC 7517), and what they share with the
// tokens that are signed by their keys: strict base64url and JSON. It verifies
// nothing; listener/filter/jwt does. Both sides of the waist use it: keys come
// with the configuration, or from where it points.
package jwks

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"math/big"
	"strings"

	"sluice/internal/config"
)

// Bounds of RSA moduli, in bits: fewer are no security, and crypto/rsa refuses
// them; more are minutes of a worker.
const minRSA, maxRSA = 1024, 16384

// Decode reads base64url, with or without padding, and nothing that isn't of its
// alphabet.
func Decode(s string) ([]byte, error) {
	if len(s)%4 == 0 {
		s = strings.TrimSuffix(strings.TrimSuffix(s, "="), "=")
	}
	if strings.ContainsAny(s, "\r\n") { // which base64 skips
		return nil, base64.CorruptInputError(0)
	}
	return base64.RawURLEncoding.DecodeString(s)
}

// Parse gives the keys of a set that can be used. That there is none is an
// error, which tells of the first key; its text is Envoy's.
func Parse(text []byte) ([]config.JWK, error) {
	set, err := Object(text)
	if err != nil {
		return nil, errors.New("Jwks is an invalid JSON")
	}
	field, ok := set["keys"]
	if !ok {
		return nil, errors.New("Jwks does not have [keys] field")
	}
	list, ok := field.(config.List)
	if !ok {
		return nil, errors.New("[keys] in Jwks is not an array")
	}
	var keys []config.JWK
	var first error
	for _, v := range list {
		fields, ok := v.(config.Struct)
		if !ok {
			continue
		}
		k, err := parse(fields)
		if err == nil {
			keys = append(keys, k)
		} else if first == nil {
			first = err
		}
	}
	if len(keys) > 0 {
		return keys, nil
	}
	if first == nil {
		first = errors.New("Jwks doesn't have any valid public key")
	}
	return nil, first
}

// parse reads one key.
func parse(fields config.Struct) (config.JWK, error) {
	k := config.JWK{ID: text(fields, "kid"), Algorithm: text(fields, "alg")}
	v, ok := fields["kty"]
	if !ok {
		return k, errors.New("[kty] is missing in [keys]")
	}
	kind, ok := v.(string)
	if !ok {
		return k, errors.New("[kty] is bad in [keys]")
	}
	var err error
	switch kind {
	case "RSA":
		k.Public, err = parseRSA(fields, k.Algorithm)
	case "EC":
		k.Public, err = parseEC(fields, k.Algorithm)
	case "OKP":
		k.Public, err = parseOKP(fields, k.Algorithm)
	case "oct":
		k.Secret, err = parseSecret(fields, k.Algorithm)
	default:
		err = errors.New("[kty] is not supported in [keys]")
	}
	return k, err
}

// text gives a field that is a string; one that isn't is taken for absent, as
// Envoy does.
func text(fields config.Struct, name string) string {
	s, _ := fields[name].(string)
	return s
}

func parseRSA(fields config.Struct, alg string) (crypto.PublicKey, error) {
	if alg != "" && !strings.HasPrefix(alg, "RS") && !strings.HasPrefix(alg, "PS") {
		return nil, errors.New("[alg] is not started with [RS] or [PS] for an RSA key")
	}
	for _, name := range []string{"n", "e"} {
		if _, ok := fields[name].(string); !ok {
			return nil, errors.New("[" + name + "] field is missing for a RSA key")
		}
	}
	n, err := Decode(text(fields, "n"))
	e, err2 := Decode(text(fields, "e"))
	modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e)
	bits := modulus.BitLen()
	if err != nil || err2 != nil || bits < minRSA || bits > maxRSA || modulus.Bit(0) == 0 ||
		exponent.BitLen() > 31 || exponent.BitLen() < 2 || exponent.Bit(0) == 0 {
		return nil, errors.New("Jwks RSA [n] or [e] field is missing or has a parse error")
	}
	return &rsa.PublicKey{N: modulus, E: int(exponent.Int64())}, nil
}

// curves are those of JWA with the algorithm that belongs to each; a key without
// a curve is of the first.
func curveOf(name string) (c elliptic.Curve, alg string, ok bool) {
	switch name {
	case "", "P-256":
		return elliptic.P256(), "ES256", true
	case "P-384":
		return elliptic.P384(), "ES384", true
	case "P-521":
		return elliptic.P521(), "ES512", true
	}
	return nil, "", false
}

func parseEC(fields config.Struct, alg string) (crypto.PublicKey, error) {
	if alg != "" && !strings.HasPrefix(alg, "ES") {
		return nil, errors.New("[alg] is not started with [ES] for an EC key")
	}
	curve, own, ok := curveOf(text(fields, "crv"))
	if !ok {
		return nil, errors.New("[crv] or [alg] field is not supported for an EC key")
	}
	if alg != "" && alg != own {
		return nil, errors.New("[crv] field specified is not compatible with [alg] for an EC key")
	}
	size := (curve.Params().BitSize + 7) / 8
	point := make([]byte, 1+2*size)
	point[0] = 4
	for i, name := range []string{"x", "y"} {
		if _, ok := fields[name].(string); !ok {
			return nil, errors.New("[" + name + "] field is missing for an EC key")
		}
		b, err := Decode(text(fields, name))
		if err != nil {
			return nil, errors.New("Jwks EC [x] or [y] field is an invalid Base64.")
		}
		if len(b) > size {
			return nil, errors.New("Jwks EC [x] and [y] fields have a parse error.")
		}
		copy(point[1+(i+1)*size-len(b):], b)
	}
	k, err := ecdsa.ParseUncompressedPublicKey(curve, point)
	if err != nil {
		return nil, errors.New("Jwks EC [x] and [y] fields have a parse error.")
	}
	return k, nil
}

func parseOKP(fields config.Struct, alg string) (crypto.PublicKey, error) {
	if alg != "" && alg != "EdDSA" {
		return nil, errors.New("[alg] is not [EdDSA] for an OKP key")
	}
	curve, ok := fields["crv"].(string)
	if !ok {
		return nil, errors.New("[crv] field is missing for an OKP key")
	}
	if curve != "Ed25519" {
		return nil, errors.New("[crv] field is not supported for an OKP key")
	}
	if _, ok := fields["x"].(string); !ok {
		return nil, errors.New("[x] field is missing for an OKP key")
	}
	b, err := Decode(text(fields, "x"))
	if err != nil {
		return nil, errors.New("Jwks OKP [x] field is an invalid Base64.")
	}
	if len(b) != ed25519.PublicKeySize {
		return nil, errors.New("Jwks OKP [x] field is wrong length.")
	}
	return ed25519.PublicKey(b), nil
}

func parseSecret(fields config.Struct, alg string) ([]byte, error) {
	switch alg {
	case "", "HS256", "HS384", "HS512":
	default:
		return nil, errors.New("[alg] does not start with [HS] for an HMAC key")
	}
	if _, ok := fields["k"].(string); !ok {
		return nil, errors.New("[k] field is missing for an HMAC key")
	}
	b, err := Decode(text(fields, "k"))
	if err != nil || len(b) == 0 {
		return nil, errors.New("Jwks Oct key is an invalid Base64")
	}
	return b, nil
}
