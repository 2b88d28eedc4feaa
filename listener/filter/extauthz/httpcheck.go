package extauthz

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"sluice/internal/config"
	"sluice/internal/httpmsg"
	"sluice/upstream/call"
)

// askHTTP asks by a request that has the client's method, host and path, with a
// prefix, and the headers that the policy lists.
func (k *check) askHTTP(p *config.AuthzHTTP) {
	h, body := &httpmsg.Head{}, k.body()
	h.SetScheme([]byte("http"))
	for _, f := range k.headers() {
		switch f.name {
		case ":method":
			h.SetMethod([]byte(f.value))
		case ":path":
			h.SetPath([]byte(cmp.Or(p.Path, p.PathPrefix+f.value)))
		case ":authority":
			h.SetAuthority([]byte(f.value))
		case ":scheme", "content-length", "transfer-encoding", "connection":
		default:
			h.AddName(f.name, []byte(f.value))
		}
	}
	if len(body) == 0 {
		h.AddString(httpmsg.ContentLength, "0")
	} else if !k.f.policy.Body.Raw {
		body = []byte(text(body))
	}
	k.f.add.Apply(h, k.x.Eval, &k.x.Edits)
	k.call(&call.Request{Cluster: p.Cluster, Timeout: p.Timeout, Retries: p.Retries, Body: append([]byte(nil), body...), Head: func(o *httpmsg.Head) { o.CopyFrom(h) }},
		func(a *call.Answer) outcome { return k.readHTTP(p, a) })
}

// readHTTP reads the answer: 200 lets the request pass, a 5xx or none is a
// failure, and any other is what the client gets.
func (k *check) readHTTP(p *config.AuthzHTTP, a *call.Answer) outcome {
	if a.Head == nil || a.Status >= 500 {
		return outcome{kind: failed}
	}
	if a.Status == 200 {
		return k.allowedBy(p, a.Head)
	}
	out := outcome{kind: denied, status: a.Status, body: string(a.Body)}
	each(a.Head, func(name, value string) {
		if len(p.Client) == 0 || anyMatches(p.Client, name) {
			out.client = append(out.client, edit{name, value, appendLine})
		}
	})
	if len(p.Client) == 0 {
		took := (k.x.Worker.Now() - k.began) / int64(time.Millisecond)
		out.client = append(out.client, edit{"x-envoy-upstream-service-time", strconv.FormatInt(took, 10), overwrite})
	}
	return out
}

func (k *check) allowedBy(p *config.AuthzHTTP, h *httpmsg.Head) outcome {
	out := outcome{kind: allowed}
	each(h, func(name, value string) {
		if name == "x-envoy-auth-headers-to-remove" {
			for n := range strings.SplitSeq(value, ",") {
				out.remove = append(out.remove, strings.ToLower(strings.TrimSpace(n)))
			}
			return
		}
		if anyMatches(p.Upstream, name) {
			out.request = append(out.request, edit{name, value, overwrite})
		}
		if anyMatches(p.UpstreamAppend, name) {
			out.request = append(out.request, edit{name, value, appendLine})
		}
		if anyMatches(p.ClientSuccess, name) {
			out.client = append(out.client, edit{name, value, appendLine})
		}
		if anyMatches(p.Metadata, name) {
			out.note(name, value)
		}
	})
	return out
}

// each visits the fields that say something of the content's meaning, not of how
// it came.
func each(h *httpmsg.Head, visit func(name, value string)) {
	for i := range h.Len() {
		_, name, value, ok := h.Field(i)
		if ok && !framing(string(name)) {
			visit(string(name), string(value))
		}
	}
}
