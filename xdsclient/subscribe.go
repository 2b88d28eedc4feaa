package xdsclient

import (
	"slices"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"sluice/internal/config"
)

// resubscribe compares what is needed by name with what is asked for, and asks. Route tables, secrets and filter configs wait for the clusters, as
// in Envoy; EDS follows at once.
func (c *Client) resubscribe() {
	if c.opts.ADS == nil {
		return
	}
	c.want(c.kinds[eds], c.endpointNames(), false)
	if !c.facts.Clusters {
		c.want(c.kinds[sds], c.secretNames(false), true)
		return
	}
	if c.opts.ADS.LDS && !c.kinds[lds].asked {
		c.subscribe(c.kinds[lds])
		if c.opts.NameTable {
			c.subscribe(c.kinds[nds])
		}
	}
	for _, name := range c.extensionNames() { // one by one, as each listener is made
		c.want(c.kinds[ecds], map[string]bool{name: true}, true)
	}
	c.want(c.kinds[rds], c.routeNames(), true)
	c.want(c.kinds[sds], c.secretNames(true), true)
	c.release()
}

// subscribe asks for a wildcard type.
func (c *Client) subscribe(k *kindState) {
	k.asked = true
	c.order = append(c.order, k)
	c.first(k)
}

// want makes names the subscription of k. Names no longer wanted are given up at
// once, or, when they linger, after a while.
func (c *Client) want(k *kindState, names map[string]bool, linger bool) {
	var more, less []string
	for n := range names {
		delete(k.idle, n)
		if !k.names[n] {
			more = append(more, n)
		}
	}
	for n := range k.names {
		switch {
		case names[n]:
		case !linger:
			less = append(less, n)
		case k.kind != ecds && k.idle[n].IsZero():
			k.idle[n] = c.opts.Now()
			c.timers["release"] = timer{c.opts.Now().Add(c.opts.ReleaseAfter), c.relink}
		}
	}
	c.change(k, more, less)
}

// release gives up names that nothing has wanted for a while.
func (c *Client) release() {
	deadline := c.opts.Now().Add(-c.opts.ReleaseAfter)
	for _, k := range []*kindState{c.kinds[rds], c.kinds[sds]} {
		var less []string
		for n, since := range k.idle {
			if !since.After(deadline) {
				less = append(less, n)
				delete(k.idle, n)
			}
		}
		c.change(k, nil, less)
	}
}

func (c *Client) change(k *kindState, more, less []string) {
	if len(more)+len(less) == 0 {
		return
	}
	slices.Sort(more)
	slices.Sort(less)
	for _, n := range more {
		k.names[n] = true
	}
	for _, n := range less {
		delete(k.names, n)
	}
	c.forget(k, less)
	if !k.asked {
		k.asked = true
		c.order = append(c.order, k)
	}
	if !k.started {
		c.first(k)
		return
	}
	k.attempts++
	c.write(request{
		url: k.kind.url(), version: k.version, nonce: c.sotwNonce(k), names: sorted(k.names),
		subscribe: more, unsubscribe: less,
	})
}

// sotwNonce is the nonce a change of subscription carries: none in the
// incremental form, where a nonce means an acknowledgement.
func (c *Client) sotwNonce(k *kindState) string {
	if c.opts.ADS.Delta {
		return ""
	}
	return k.nonce
}

// resume opens every type again on a new stream, telling what is held.
func (c *Client) resume() {
	for _, k := range c.kinds {
		k.started = false
	}
	for _, k := range c.order {
		c.first(k)
	}
}

// first sends a type's first request of a stream.
func (c *Client) first(k *kindState) {
	if c.conn == nil {
		return
	}
	k.started = true
	k.attempts++
	r := request{url: k.kind.url(), version: k.version, names: sorted(k.names), subscribe: sorted(k.names)}
	for name, x := range k.kept {
		if x.body != nil && (k.kind.wildcard() || k.names[name]) {
			if r.initial == nil {
				r.initial = map[string]string{}
			}
			r.initial[name] = x.version
		}
	}
	c.write(r)
}

// write sends a request, with the node when the stream or the form wants it.
func (c *Client) write(r request) {
	if c.conn == nil {
		return
	}
	if !c.opts.ADS.NodeOnce || !c.conn.greeted {
		r.node = nodeMessage(&c.opts.Node)
		c.conn.greeted = true
	}
	c.conn.send(r)
}

func sorted(names map[string]bool) []string {
	if len(names) == 0 {
		return nil
	}
	out := make([]string, 0, len(names))
	for n := range names {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// nodeMessage turns a node into its message.
func nodeMessage(n *config.Node) *core.Node {
	out := &core.Node{
		Id: n.ID, Cluster: n.Cluster, UserAgentName: n.UserAgentName,
		Metadata: structMessage(n.Metadata),
	}
	if n.UserAgentVersion != "" {
		out.UserAgentVersionType = &core.Node_UserAgentVersion{UserAgentVersion: n.UserAgentVersion}
	}
	if n.Region+n.Zone+n.SubZone != "" {
		out.Locality = &core.Locality{Region: n.Region, Zone: n.Zone, SubZone: n.SubZone}
	}
	return out
}

func structMessage(s config.Struct) *structpb.Struct {
	if s == nil {
		return nil
	}
	out := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(s))}
	for k, v := range s {
		out.Fields[k] = valueMessage(v)
	}
	return out
}

func valueMessage(v config.Value) *structpb.Value {
	switch v := v.(type) {
	case string:
		return structpb.NewStringValue(v)
	case float64:
		return structpb.NewNumberValue(v)
	case bool:
		return structpb.NewBoolValue(v)
	case config.Struct:
		return structpb.NewStructValue(structMessage(v))
	case config.List:
		out := &structpb.ListValue{}
		for _, e := range v {
			out.Values = append(out.Values, valueMessage(e))
		}
		return structpb.NewListValue(out)
	}
	return structpb.NewNullValue()
}
