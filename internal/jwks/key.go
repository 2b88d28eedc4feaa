package jwks

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"math/big"
	"strings"

	"sluice/internal/config"
)

// Bounds of RSA moduli, in bits: fewer are no security, and crypto/rsa refuses
// them; more are minutes of a worker.
const minRSA, maxRSA = 1024, 16384

func parseRSA(fields config.Struct, alg string) (crypto.PublicKey, error) {
	if alg != "" && !strings.HasPrefix(alg, "RS") && !strings.HasPrefix(alg, "PS") {
		return nil, fault("[alg] is not started with [RS] or [PS] for an RSA key")
	}
	for _, name := range []string{"n", "e"} {
		if _, ok := fields[name].(string); !ok {
			return nil, fault("[" + name + "] field is missing for a RSA key")
		}
	}
	n, err := Decode(text(fields, "n"))
	e, err2 := Decode(text(fields, "e"))
	modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e)
	bits := modulus.BitLen()
	if err != nil || err2 != nil || bits < minRSA || bits > maxRSA || modulus.Bit(0) == 0 ||
		exponent.BitLen() > 31 || exponent.BitLen() < 2 || exponent.Bit(0) == 0 {
		return nil, fault("Jwks RSA [n] or [e] field is missing or has a parse error")
	}
	return &rsa.PublicKey{N: modulus, E: int(exponent.Int64())}, nil
}

// curveOf gives a curve of JWA and the algorithm that belongs to it; a key
// without a curve is of the first.
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
		return nil, fault("[alg] is not started with [ES] for an EC key")
	}
	curve, own, ok := curveOf(text(fields, "crv"))
	if !ok {
		return nil, fault("[crv] or [alg] field is not supported for an EC key")
	}
	if alg != "" && alg != own {
		return nil, fault("[crv] field specified is not compatible with [alg] for an EC key")
	}
	size := (curve.Params().BitSize + 7) / 8
	point := make([]byte, 1+2*size)
	point[0] = 4
	for i, name := range []string{"x", "y"} {
		if _, ok := fields[name].(string); !ok {
			return nil, fault("[" + name + "] field is missing for an EC key")
		}
		b, err := Decode(text(fields, name))
		if err != nil {
			return nil, fault("Jwks EC [x] or [y] field is an invalid Base64.")
		}
		if len(b) > size {
			return nil, fault("Jwks EC [x] and [y] fields have a parse error.")
		}
		copy(point[1+(i+1)*size-len(b):], b)
	}
	k, err := ecdsa.ParseUncompressedPublicKey(curve, point)
	if err != nil {
		return nil, fault("Jwks EC [x] and [y] fields have a parse error.")
	}
	return k, nil
}

func parseOKP(fields config.Struct, alg string) (crypto.PublicKey, error) {
	if alg != "" && alg != "EdDSA" {
		return nil, fault("[alg] is not [EdDSA] for an OKP key")
	}
	curve, ok := fields["crv"].(string)
	if !ok {
		return nil, fault("[crv] field is missing for an OKP key")
	}
	if curve != "Ed25519" {
		return nil, fault("[crv] field is not supported for an OKP key")
	}
	if _, ok := fields["x"].(string); !ok {
		return nil, fault("[x] field is missing for an OKP key")
	}
	b, err := Decode(text(fields, "x"))
	if err != nil {
		return nil, fault("Jwks OKP [x] field is an invalid Base64.")
	}
	if len(b) != ed25519.PublicKeySize {
		return nil, fault("Jwks OKP [x] field is wrong length.")
	}
	return ed25519.PublicKey(b), nil
}

func parseSecret(fields config.Struct, alg string) ([]byte, error) {
	switch alg {
	case "", "HS256", "HS384", "HS512":
	default:
		return nil, fault("[alg] does not start with [HS] for an HMAC key")
	}
	if _, ok := fields["k"].(string); !ok {
		return nil, fault("[k] field is missing for an HMAC key")
	}
	b, err := Decode(text(fields, "k"))
	if err != nil || len(b) == 0 {
		return nil, fault("Jwks Oct key is an invalid Base64")
	}
	return b, nil
}
