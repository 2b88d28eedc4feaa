package xdsclient

import (
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"sluice/xdsclient/translate"
)

// kind is a resource type.
type kind uint8

const (
	cds kind = iota
	eds
	lds
	rds
	sds
	ecds
	nds
	kindCount
)

// url gives a kind's type URL.
func (k kind) url() string {
	return [kindCount]string{
		translate.ClusterURL, translate.EndpointURL, translate.ListenerURL, translate.RouteURL,
		translate.SecretURL, translate.ExtensionURL, translate.NameTableURL,
	}[k]
}

// String gives the kind's short name.
func (k kind) String() string {
	return [kindCount]string{"CDS", "EDS", "LDS", "RDS", "SDS", "ECDS", "NDS"}[k]
}

// wildcard kinds are asked for as a whole; a state-of-the-world answer then says
// by silence what is gone.
func (k kind) wildcard() bool { return k == cds || k == lds || k == nds }

func kindOf(url string) (kind, bool) {
	for k := range kindCount {
		if k.url() == url {
			return k, true
		}
	}
	return 0, false
}

// kindState is what the client knows of one type.
type kindState struct {
	kind    kind
	asked   bool            // subscribed at all
	started bool            // on this stream
	names   map[string]bool // subscribed, without wildcards
	idle    map[string]time.Time
	version string // last accepted, state of the world
	nonce   string // of the last answer on this stream
	pending []ack  // held back
	kept    map[string]*kept
	archive archive
	named   map[uint64]string // names by content, for forms that don't tell them
	// The last refusal and when; empty when the last answer was taken.
	refusal   string
	refusedAt time.Time
	attempts  uint64
	successes uint64
	rejected  uint64
	counts    map[string]*updates // by resource name
}

// updates counts what happened to one resource.
type updates struct{ success, reload uint64 }

func (k *kindState) updated(name string) *updates {
	u := k.counts[name]
	if u == nil {
		u = &updates{}
		k.counts[name] = u
	}
	return u
}

// kept is a received resource as it came, for resuming and for config_dump.
type kept struct {
	body    []byte // the accepted one, as the archive keeps it; nil when none was
	version string
	hash    uint64
	at      time.Time
	failed  *failed
}

// failed is a refused newer version of a resource.
type failed struct {
	body    *anypb.Any
	version string
	why     string
	at      time.Time
	hash    uint64
	err     error
}

// refusedBefore gives the refusal of the same bytes, for a server that sends
// them over and over. Secrets are looked at anew: their files may have come.
func (k *kindState) refusedBefore(name string, hash uint64) *failed {
	x := k.kept[name]
	if name == "" || x == nil || x.failed == nil || x.failed.hash != hash || k.kind == sds {
		return nil
	}
	var r *translate.Refusal
	if !errors.As(x.failed.err, &r) {
		return nil // refused for what others were then
	}
	return x.failed
}

func newKindState(k kind) *kindState {
	return &kindState{kind: k, archive: archive{closed: k == sds}, names: map[string]bool{}, idle: map[string]time.Time{}, kept: map[string]*kept{}, named: map[uint64]string{}, counts: map[string]*updates{}}
}

// hold gives the record of a name, making it.
func (k *kindState) hold(name string) *kept {
	r := k.kept[name]
	if r == nil {
		r = &kept{}
		k.kept[name] = r
	}
	return r
}

// body gives an accepted resource as it came, nil when there is none.
func (k *kindState) body(x *kept) *anypb.Any {
	if x.body == nil {
		return nil
	}
	return &anypb.Any{TypeUrl: k.kind.url(), Value: k.archive.unpack(x.body)}
}
