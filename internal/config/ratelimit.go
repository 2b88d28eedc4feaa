package config

import "time"

// TokenBucket gives Fill tokens each Interval, and holds at most Max.
type TokenBucket struct {
	Max, Fill uint32
	Interval  time.Duration
}

// LocalRateLimit is envoy.filters.http.local_ratelimit.
type LocalRateLimit struct {
	StatPrefix        string
	Bucket            *TokenBucket // nil: what no descriptor limits is not limited
	Status            int
	ResourceExhausted bool // the gRPC status of a refused call, else by Status
	Enabled           Percent
	Enforced          Percent
	ResponseHeaders   []HeaderMutation // of refusals
	RequestHeaders    []HeaderMutation // of requests that would have been refused
	PerConnection     bool
	XRateLimit        bool // responses tell of the bucket by x-ratelimit headers
	RetryAfter        bool // refusals with 429 do, by retry-after

	Descriptors []RateDescriptor
	MaxDynamic  int  // values counted of each descriptor that leaves them open
	SpareBucket bool // Bucket is only for what no descriptor fits
	// RateLimits describe requests; none: those of the route with this Stage do,
	// and those of its virtual host as VirtualHost says.
	RateLimits  []RateLimit
	Stage       uint32
	VirtualHost VirtualHostLimits
}

// VirtualHostLimits says when the rate_limits of a virtual host count.
type VirtualHostLimits uint8

// The choices, numbered as in Envoy.
const (
	VirtualHostOverride VirtualHostLimits = iota // when the route has none
	VirtualHostInclude
	VirtualHostIgnore
)

// RateDescriptor gives requests of one description a bucket of their own.
type RateDescriptor struct {
	Entries []RateEntry
	Bucket  TokenBucket
	Shadow  bool // what it would refuse is counted only
}

// RateEntry is one part of a description. As part of a RateDescriptor it may
// leave Value empty: each value then has a bucket.
type RateEntry struct{ Key, Value string }

// RateLimit describes a request, one entry an action; a request on which an
// action finds nothing isn't described.
type RateLimit struct {
	Stage   uint32
	Actions []RateAction
}

// RateSource says where a RateAction has its value from.
type RateSource uint8

// The sources.
const (
	RateGenericKey    RateSource = iota // Value
	RateRequestHeader                   // the first line of header Name
	RateQueryParam                      // the first parameter Name, decoded
	RateRemoteAddress                   // the client
	RateMaskedRemote                    // the client's network
	RateHeaderMatch                     // Value, if the headers fit
	RateQueryMatch                      // Value, if the decoded parameters fit
)

// RateAction makes one entry of a description; Source says which members count.
type RateAction struct {
	Source          RateSource
	Key, Value      string
	Name            string
	SkipAbsent      bool // describe a request without Name by the other actions
	Headers         []HeaderMatch
	Query           []QueryMatch
	Unless          bool // Value, if they don't fit
	Masked, Masked6 int  // prefix lengths
}
