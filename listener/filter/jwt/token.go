package jwt

import (
	"strings"

	"sluice/internal/config"
	"sluice/internal/jwks"
)

// token is a JWS in compact form (RFC 7515, section 3.1), taken apart and not
// verified.
type token struct {
	signed    string // header and payload as the signature covers them
	encoded   string // the payload in base64url
	signature []byte
	header    config.Struct
	payload   config.Struct

	algorithm, keyID           string
	issuer, subject            string
	issued, notBefore, expires uint64
	audiences                  []string
}

// parse takes a token apart. Its three parts are taken as they are: no part may
// be empty, and there is nothing around them.
func parse(text string) (*token, status) {
	head, rest, _ := strings.Cut(text, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	if head == "" || payload == "" || signature == "" || strings.Contains(signature, ".") {
		return nil, badFormat
	}
	t := &token{signed: text[:len(head)+1+len(payload)], encoded: payload}
	if s := t.readHeader(head); s != ok {
		return nil, s
	}
	if s := t.readPayload(payload); s != ok {
		return nil, s
	}
	var err error
	if t.signature, err = jwks.Decode(signature); err != nil {
		return nil, badSignatureBase64
	}
	return t, ok
}

func (t *token) readHeader(text string) status {
	b, err := jwks.Decode(text)
	if err != nil {
		return badHeaderBase64
	}
	if t.header, err = jwks.Object(b); err != nil {
		return badHeaderJSON
	}
	alg, isString := t.header["alg"].(string)
	if !isString {
		return badAlgorithm
	}
	if family(alg) == "" {
		return unknownAlgorithm
	}
	t.algorithm = alg
	return stringClaim(t.header, "kid", &t.keyID, badKeyID)
}

func (t *token) readPayload(text string) status {
	b, err := jwks.Decode(text)
	if err != nil {
		return badPayloadBase64
	}
	if t.payload, err = jwks.Object(b); err != nil {
		return badPayloadJSON
	}
	var id string
	for _, s := range [...]status{
		stringClaim(t.payload, "iss", &t.issuer, issuerNotString),
		stringClaim(t.payload, "sub", &t.subject, subjectNotString),
		timeClaim(t.payload, "iat", &t.issued, issuedNotInteger, issuedOutOfRange),
		timeClaim(t.payload, "nbf", &t.notBefore, notBeforeNotInteger, notBeforeOutOfRange),
		timeClaim(t.payload, "exp", &t.expires, expiresNotInteger, expiresOutOfRange),
		t.readAudiences(),
		stringClaim(t.payload, "jti", &id, idNotString),
	} {
		if s != ok {
			return s
		}
	}
	return ok
}

func stringClaim(from config.Struct, name string, to *string, wrong status) status {
	v, there := from[name]
	if !there {
		return ok
	}
	s, isString := v.(string)
	if !isString {
		return wrong
	}
	*to = s
	return ok
}

// timeClaim reads seconds; a fraction is cut off, as Envoy does.
func timeClaim(from config.Struct, name string, to *uint64, wrong, outside status) status {
	v, there := from[name]
	if !there {
		return ok
	}
	n, isNumber := v.(float64)
	switch {
	case !isNumber:
		return wrong
	case n < 0 || n >= 1<<64:
		return outside
	}
	*to = uint64(n)
	return ok
}

func (t *token) readAudiences() status {
	v, there := t.payload["aud"]
	if !there {
		return ok
	}
	if s, isString := v.(string); isString {
		t.audiences = []string{s}
		return ok
	}
	list, isList := v.(config.List)
	if !isList {
		return audienceNotString
	}
	for _, e := range list {
		s, isString := e.(string)
		if !isString {
			return audienceNotString
		}
		t.audiences = append(t.audiences, s)
	}
	return ok
}
