package extauthz

import (
	"cmp"
	"slices"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/internal/telemetry"
	"sluice/listener/filter"
	"sluice/listener/route"
	"sluice/upstream/call"
)

type kind uint8

const (
	failed kind = iota
	allowed
	denied
)

// outcome is what the service says.
type outcome struct {
	kind     kind
	status   int // of a refusal
	body     string
	request  []edit
	remove   []string
	query    []config.QueryMutation
	client   []edit
	metadata config.Struct
}

func (o *outcome) note(key, value string) {
	if o.metadata == nil {
		o.metadata = config.Struct{}
	}
	o.metadata[key] = value
}

// check is the check of one request.
type check struct {
	f        *Filter
	x        *filter.Exchange
	began    int64 // Worker.Now
	cancel   func()
	parked   bool
	over     bool
	verdict  filter.Verdict
	toClient []edit
}

func (k *check) ask() {
	if p := k.f.policy.HTTP; p != nil {
		k.askHTTP(p)
	} else {
		k.askGRPC(k.f.policy.GRPC)
	}
}

// call asks, and goes on by what read makes of the answer.
func (k *check) call(r *call.Request, read func(*call.Answer) outcome) {
	cancel := k.x.Call(r, func(a *call.Answer) {
		k.cancel, k.over = nil, true
		o := read(a)
		k.verdict = k.decide(&o)
		if k.parked && k.verdict == filter.Continue {
			k.x.Resume()
		}
	})
	if !k.over {
		k.cancel = cancel
	}
}

func (k *check) decide(o *outcome) filter.Verdict {
	edits := slices.Concat(o.request, o.client)
	if slices.ContainsFunc(edits, func(e edit) bool { return !sendable(&e) }) {
		k.x.Stats.Inc(k.f.stats.invalid)
		return k.refuse(filter.Reply{Status: 500, Details: "ext_authz_invalid"})
	}
	k.note(o)
	switch o.kind {
	case allowed:
		k.count("ok", k.f.stats.ok)
		k.change(o)
		return filter.Continue
	case denied:
		k.count("denied", k.f.stats.denied)
		if most := k.f.policy.MaxDenied; most > 0 {
			o.body = o.body[:min(len(o.body), most)]
		}
		return k.refuse(filter.Reply{Status: o.status, Body: o.body, Details: "ext_authz_denied", Flag: telemetry.UAEX, Headers: replaced(o.client)})
	}
	return k.failed()
}

// failed is for a check without an outcome.
func (k *check) failed() filter.Verdict {
	k.count("error", k.f.stats.error)
	if !k.f.policy.FailOpen {
		return k.refuse(filter.Reply{Status: k.f.policy.ErrorStatus, Details: "ext_authz_error", Flag: telemetry.UAEX})
	}
	k.count("failure_mode_allowed", k.f.stats.open)
	if k.f.policy.FailOpenHeader {
		apply(k.x.Request, []edit{{"x-envoy-auth-failure-mode-allowed", "true", overwrite}})
	}
	return filter.Continue
}

func (k *check) refuse(r filter.Reply) filter.Verdict {
	r.GRPC = -1
	k.x.Reply(r)
	return filter.Stop
}

// change makes of the request what the service wants.
func (k *check) change(o *outcome) {
	apply(k.x.Request, o.request)
	remove(k.x.Request, o.remove)
	if len(o.query) > 0 {
		k.x.Request.SetPath(route.EditQuery(k.x.Request.Path(), o.query, k.x.Eval))
	}
	k.toClient = o.client
	if k.f.policy.ClearRoute && len(o.request)+len(o.remove)+len(o.query) > 0 {
		k.x.ClearRoute()
	}
}

// note keeps what the service tells later filters, with how long it took.
func (k *check) note(o *outcome) {
	if len(o.metadata) == 0 {
		return
	}
	if k.f.policy.NoMetadata {
		k.x.Stats.Inc(k.f.stats.ignored)
		return
	}
	for key, v := range o.metadata {
		k.x.Record.Dynamic.Set(k.f.name, key, v)
	}
	if o.kind == allowed {
		k.x.Record.Dynamic.Set(k.f.name, "ext_authz_duration", float64((k.x.Worker.Now()-k.began)/int64(time.Millisecond)))
	}
}

// count counts here and for the cluster that the request is meant for.
func (k *check) count(what, name string) {
	k.x.Stats.Inc(name)
	if c := k.x.Cluster(); c != nil {
		k.x.Set.Named("cluster", cmp.Or(c.AltStatName, c.Name)).Inc("ext_authz." + what)
	}
}

// replaced has a refusal's headers stand in the place of others of their names.
func replaced(edits []edit) func(h *httpmsg.Head) {
	return func(h *httpmsg.Head) {
		for i := range edits {
			h.DelName(edits[i].name)
		}
		apply(h, edits)
	}
}
