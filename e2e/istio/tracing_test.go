package e2e

import (
	"fmt"
	"testing"
	"time"
)

// TestSpans has istiod make a's and b's sidecars report a request to app c, through
// the mesh: to Zipkin, then by OTLP.
func TestSpans(t *testing.T) {
	b, pods := bed(t, "sls", false, map[string]Sidecar{"a": Ours, "b": Ours, "c": Ours})
	a, ctx := pods["a"], t.Context()
	got := pods["c"].app.Handler.(echoes).spans
	for _, provider := range []string{"zipkin", "otlp"} {
		if err := b.Apply("tracing", fmt.Sprintf(tracingYAML, provider)); err != nil {
			t.Fatal(err)
		}
		got.forget()
		err := until(ctx, 15*time.Second, "linked spans to be sent by "+provider, func() error {
			status, _, err := a.ask(ctx, vip("b"), "b", "/traced-"+provider)
			if err != nil || status != 200 {
				return fmt.Errorf("status %d, %w", status, err)
			}
			return got.linked()
		})
		if err != nil {
			t.Error(err)
		}
	}
}
