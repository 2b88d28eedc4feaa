package xdsclient

import (
	"fmt"
	"strings"

	status "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
)

// maxNACK bounds the text of a NACK; servers log it whole.
const maxNACK = 4096

// maxNACKNames bounds how many refused resources a NACK describes.
const maxNACKNames = 10

// ack is an answer to one response, which may be held back.
type ack struct {
	nonce   string
	failure *status.Status
}

// answer takes a response: translate, link, subscribe to what it names, and only
// then acknowledge, which is the order Envoy keeps.
func (c *Client) answer(a *answer) {
	kd, ok := kindOf(a.url)
	if !ok {
		c.write(request{url: a.url, nonce: a.nonce, failure: failure(fmt.Sprintf("unknown type %s", a.url))})
		return
	}
	k := c.kinds[kd]
	k.nonce = a.nonce
	why := c.take(k, a)
	if why == "" {
		k.version, k.refusal = a.version, ""
		k.successes++
		if kd.wildcard() {
			c.answered(kd)
		}
	} else {
		k.refusal, k.refusedAt = why, c.opts.Now()
		k.rejected++
		c.opts.Logf("%s %s refused: %s", kd, a.version, why)
		if kd.wildcard() {
			c.answered(kd) // the wait for a first answer is over all the same
		}
	}
	ready := c.facts.Clusters
	switch {
	case c.endpointsOnly != nil:
		c.relinkEndpoints(c.endpointsOnly)
	case kd == rds:
		c.relinkRoutes()
	default:
		c.relink()
	}
	c.flush()
	answer := ack{nonce: a.nonce}
	if why != "" {
		answer.failure = failure(why)
	}
	k.pending = append(k.pending, answer)
	// Envoy holds the answer to CDS until the clusters have warmed, once it has
	// started: a server that sends routes after the answer then finds them ready.
	if kd != cds || !ready || !c.warming() {
		c.answerAll(k)
	}
}

func (c *Client) answered(k kind) {
	switch k {
	case cds:
		c.facts.CDS = true
		delete(c.timers, "cds")
	case lds:
		c.facts.LDS = true
		delete(c.timers, "lds")
	}
}

// flush sends the answers that were held while clusters warmed.
func (c *Client) flush() {
	if k := c.kinds[cds]; len(k.pending) > 0 && !c.warming() {
		c.answerAll(k)
	}
}

func (c *Client) answerAll(k *kindState) {
	for _, p := range k.pending {
		r := request{url: k.kind.url(), version: k.version, nonce: p.nonce, failure: p.failure}
		if !c.opts.ADS.Delta {
			r.names = sorted(k.names)
		}
		k.attempts++
		c.write(r)
	}
	k.pending = nil
}

func failure(why string) *status.Status {
	if len(why) > maxNACK {
		why = why[:maxNACK] + "..."
	}
	return &status.Status{Code: int32(codes.InvalidArgument), Message: strings.ToValidUTF8(why, "?")}
}

// refusals collects the refused resources of one response.
type refusals struct {
	kind  kind
	lines []string
	more  int
}

func (r *refusals) add(name string, err error) {
	if len(r.lines) >= maxNACKNames {
		r.more++
		return
	}
	r.lines = append(r.lines, fmt.Sprintf("%s %q: %v", r.kind, name, err))
}

// String is empty when nothing was refused.
func (r *refusals) String() string {
	if len(r.lines) == 0 {
		return ""
	}
	text := strings.Join(r.lines, "\n")
	if r.more > 0 {
		text += fmt.Sprintf("\nand %d more", r.more)
	}
	return text
}
