package config

import (
	"crypto"
	"time"
)

// JWT is envoy.filters.http.jwt_authn.
type JWT struct {
	Providers       []JWTProvider // by name
	Rules           []JWTRule     // the first that matches decides; none: no token is asked for
	Requirements    map[string]*JWTRequirement
	BypassPreflight bool // CORS preflights need no token
	StripFailure    bool // refusals say nothing
	StatPrefix      string
}

// JWTRoute is what a route says of envoy.filters.http.jwt_authn: no requirement,
// or one of JWT.Requirements.
type JWTRoute struct {
	Disabled    bool
	Requirement string
}

func (*JWT) httpPolicy()      {}
func (*JWTRoute) httpPolicy() {}

// JWTProvider is an issuer of tokens: where they are, what must be true of them,
// and what becomes of them.
type JWTProvider struct {
	Name      string
	Issuer    string // "": any
	Audiences []string
	Subject   *StringMatch // nil: any
	Keys      []JWK
	Remote    *RemoteJWKS // nil: Keys

	RequireExpiration bool
	MaxLifetime       *time.Duration // from now to the expiration
	ClockSkew         uint64         // seconds

	Headers []JWTHeader
	Params  []string
	Cookies []string

	Forward       bool   // the token stays in the request
	PayloadHeader string // gets the payload, in base64url
	PadPayload    bool
	Claims        []ClaimHeader
	ClearRoute    bool

	// Keys in dynamic metadata: of the payload, the header, and a failure.
	PayloadKey, HeaderKey, FailureKey string
	SpaceDelimited                    []string // claims that become lists
}

// JWTHeader is a header with a token behind a prefix.
type JWTHeader struct{ Name, Prefix string }

// ClaimHeader writes a claim to a header.
type ClaimHeader struct {
	Header string
	Path   []string
}

// RemoteJWKS says where a provider's keys are fetched.
type RemoteJWKS struct {
	Cluster            string
	Scheme, Host, Path string
	Timeout            time.Duration // of all tries
	Cache              time.Duration // how long they are good
	Retries            Retries
}

// JWK is a key that signatures are verified with.
type JWK struct {
	ID        string           // kid; "": of any token
	Algorithm string           // alg; "": any that the key is good for
	Public    crypto.PublicKey // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey; nil: Secret
	Secret    []byte
}

// JWTRule is what requests that match must show; Requires nil: nothing.
type JWTRule struct {
	Match    RouteMatch
	Requires *JWTRequirement
}

// JWTOp is the kind of a JWTRequirement.
type JWTOp uint8

// The kinds.
const (
	JWTOf JWTOp = iota // a token of Provider
	JWTAny
	JWTAll
	JWTAllowMissing
	JWTAllowFailed
)

// JWTRequirement is a node of a tree of requirements.
type JWTRequirement struct {
	Op        JWTOp
	Provider  int      // in JWT.Providers
	Audiences []string // instead of the provider's
	Sub       []JWTRequirement
}
