package config

import "time"

// ExtAuthz is envoy.filters.http.ext_authz: a service says whether a request may
// pass. One of HTTP and GRPC is set.
type ExtAuthz struct {
	HTTP *AuthzHTTP
	GRPC *AuthzGRPC

	StatPrefix     string
	FailOpen       bool // a check that fails lets the request pass
	FailOpenHeader bool // and tells the upstream so
	ErrorStatus    int  // of the answer when a check fails
	Body           *AuthzBody
	ClearRoute     bool // after headers have changed
	NoMetadata     bool // what the service says becomes no dynamic metadata
	MaxDenied      int  // bytes of a refusal's content; 0: all

	AllHeaders          bool // the service gets all headers but Disallowed, else those of Allowed
	Allowed, Disallowed []StringMatch

	Enabled         Percent        // of requests that are checked
	EnabledMetadata *MetadataMatch // of dynamic metadata; nil: all are checked
	DenyDisabled    bool           // what isn't checked is refused
	TLSSession      bool           // a gRPC service gets the server name
	PeerCertificate bool           // and the client's certificate
	Metadata        []string       // name spaces of dynamic metadata that a gRPC service gets
}

// ExtAuthzRoute is what a route says of envoy.filters.http.ext_authz.
type ExtAuthzRoute struct {
	Disabled bool
	Context  map[string]string // for a gRPC service
	NoBody   bool
}

// NetworkExtAuthz is envoy.filters.network.ext_authz: a gRPC service says whether
// a connection may go on.
type NetworkExtAuthz struct {
	GRPC            *AuthzGRPC
	StatPrefix      string
	FailOpen        bool           // a check that fails lets the connection go on
	EnabledMetadata *MetadataMatch // of dynamic metadata; nil: all are checked
	TLSSession      bool
	PeerCertificate bool
}

func (*NetworkExtAuthz) networkFilter() {}

func (*ExtAuthz) httpPolicy()      {}
func (*ExtAuthzRoute) httpPolicy() {}

// AuthzBody has the service see content, at most Max bytes. Requests with more
// are refused, or it sees the first part. Raw content may be any bytes.
type AuthzBody struct {
	Max     int
	Partial bool
	Raw     bool
}

// AuthzHTTP is a service that is asked by a request like the client's.
type AuthzHTTP struct {
	Cluster    string
	Timeout    time.Duration
	PathPrefix string
	Path       string // "": the client's, behind PathPrefix
	Retries    Retries
	Add        []HeaderMutation

	// Headers of an answer: to the upstream in the place of the client's or beside
	// them, to the client with a refusal (none: all) or the upstream's response, and
	// to dynamic metadata.
	Upstream, UpstreamAppend, Client, ClientSuccess, Metadata []StringMatch
}

// AuthzGRPC is a service envoy.service.auth.v3.Authorization.
type AuthzGRPC struct {
	Cluster, Authority string
	Timeout            time.Duration
	Metadata           []HeaderMutation // initial metadata of a call
}
