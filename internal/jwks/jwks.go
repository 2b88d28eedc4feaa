// Package jwks reads JSON Web Key Sets (RFC 7517), and what they share with the
// tokens that are signed by their keys: strict base64url and JSON. It verifies
// nothing; listener/filter/jwt does. Both sides of the waist use it: keys come
// with the configuration, or from where it points.
package jwks

import (
	"encoding/base64"
	"strings"

	"sluice/internal/config"
)

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

// fault is what is wrong with a set, in Envoy's words.
type fault string

func (f fault) Error() string { return string(f) }

// Parse gives the keys of a set that can be used. That there is none is an
// error, which tells of the first key.
func Parse(text []byte) ([]config.JWK, error) {
	set, err := Object(text)
	if err != nil {
		return nil, fault("Jwks is an invalid JSON")
	}
	field, ok := set["keys"]
	if !ok {
		return nil, fault("Jwks does not have [keys] field")
	}
	list, ok := field.(config.List)
	if !ok {
		return nil, fault("[keys] in Jwks is not an array")
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
		first = fault("Jwks doesn't have any valid public key")
	}
	return nil, first
}

// parse reads one key.
func parse(fields config.Struct) (config.JWK, error) {
	k := config.JWK{ID: text(fields, "kid"), Algorithm: text(fields, "alg")}
	v, ok := fields["kty"]
	if !ok {
		return k, fault("[kty] is missing in [keys]")
	}
	kind, ok := v.(string)
	if !ok {
		return k, fault("[kty] is bad in [keys]")
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
		err = fault("[kty] is not supported in [keys]")
	}
	return k, err
}

// text gives a field that is a string; one that isn't is taken for absent, as
// Envoy does.
func text(fields config.Struct, name string) string {
	s, _ := fields[name].(string)
	return s
}
