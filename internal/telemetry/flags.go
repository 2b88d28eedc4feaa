package telemetry

// Flag is one of Envoy's response flags.
type Flag uint8

// The response flags.
const (
	FlagNone Flag = iota
	LH
	UH
	UT
	LR
	UR
	UF
	UC
	UO
	NR
	DI
	FI
	RL
	UAEX
	RLSE
	DC
	URX
	SI
	IH
	DPE
	UMSDR
	RFCF
	NFCF
	DT
	UPE
	NC
	OM
	DF
	DO
	DR
	numFlags
)

var flagNames = [numFlags][2]string{
	LH: {"LH", "FailedLocalHealthCheck"}, UH: {"UH", "NoHealthyUpstream"}, UT: {"UT", "UpstreamRequestTimeout"},
	LR: {"LR", "LocalReset"}, UR: {"UR", "UpstreamRemoteReset"}, UF: {"UF", "UpstreamConnectionFailure"},
	UC: {"UC", "UpstreamConnectionTermination"}, UO: {"UO", "UpstreamOverflow"}, NR: {"NR", "NoRouteFound"},
	DI: {"DI", "DelayInjected"}, FI: {"FI", "FaultInjected"}, RL: {"RL", "RateLimited"},
	UAEX: {"UAEX", "UnauthorizedExternalService"}, RLSE: {"RLSE", "RateLimitServiceError"},
	DC: {"DC", "DownstreamConnectionTermination"}, URX: {"URX", "UpstreamRetryLimitExceeded"}, SI: {"SI", "StreamIdleTimeout"},
	IH: {"IH", "InvalidEnvoyRequestHeaders"}, DPE: {"DPE", "DownstreamProtocolError"},
	UMSDR: {"UMSDR", "UpstreamMaxStreamDurationReached"}, RFCF: {"RFCF", "ResponseFromCacheFilter"},
	NFCF: {"NFCF", "NoFilterConfigFound"}, DT: {"DT", "DurationTimeout"}, UPE: {"UPE", "UpstreamProtocolError"},
	NC: {"NC", "NoClusterFound"}, OM: {"OM", "OverloadManagerTerminated"}, DF: {"DF", "DnsResolutionFailed"},
	DO: {"DO", "DropOverload"}, DR: {"DR", "DownstreamRemoteReset"},
}

// String gives the short name.
func (f Flag) String() string { return flagNames[f][0] }

// Flags is a set of response flags in the order in which they were set, which
// is the order Envoy prints.
type Flags struct {
	n    uint8
	list [7]Flag
}

// Set adds f.
func (s *Flags) Set(f Flag) {
	if f != FlagNone && !s.Has(f) && int(s.n) < len(s.list) {
		s.list[s.n] = f
		s.n++
	}
}

// Has reports whether f was set.
func (s *Flags) Has(f Flag) bool {
	for _, g := range s.list[:s.n] {
		if g == f {
			return true
		}
	}
	return false
}

// Empty reports whether none was set.
func (s *Flags) Empty() bool { return s.n == 0 }

// Clear removes all.
func (s *Flags) Clear() { s.n = 0 }

// Append appends the comma-joined names, nothing for the empty set.
func (s *Flags) Append(dst []byte, long bool) []byte {
	for i, f := range s.list[:s.n] {
		if i > 0 {
			dst = append(dst, ',')
		}
		name := flagNames[f][0]
		if long {
			name = flagNames[f][1]
		}
		dst = append(dst, name...)
	}
	return dst
}

// mask is the set without its order.
func (s *Flags) mask() (m uint64) {
	for _, f := range s.list[:s.n] {
		m |= 1 << f
	}
	return m
}

// FlagOf gives the flag of a short name, FlagNone for any other text.
func FlagOf(short string) Flag {
	for f := FlagNone + 1; f < numFlags; f++ {
		if flagNames[f][0] == short {
			return f
		}
	}
	return FlagNone
}
