package e2e

import (
	"fmt"
	"testing"
	"time"
)

// TestCustomAuthorization has istiod make b's sidecar ask app c, through the mesh,
// who may come: over HTTP, then over gRPC.
func TestCustomAuthorization(t *testing.T) {
	b, pods := bed(t, "sle", false, map[string]Sidecar{"a": Ours, "b": Ours, "c": Ours})
	a, ctx := pods["a"], t.Context()
	for _, c := range []struct{ provider, user string }{{"authz-http", "known to c"}, {"authz-grpc", "spiffe://cluster.local/ns/demo/sa/a"}} {
		provider, user := c.provider, c.user
		if err := b.Apply("custom", fmt.Sprintf(customYAML, provider)); err != nil {
			t.Fatal(err)
		}
		for word, want := range map[string]int{"allow": 200, "deny": 403} { // connections of before have what was there before
			err := until(ctx, 20*time.Second, provider+" to be asked", func() error {
				status, got, err := a.ask(ctx, vip("b"), "b", "/checked", permission, word)
				if err == nil && (status != want || want == 200 && got.Headers.Get("X-User") != user) {
					err = fmt.Errorf("%s: status %d, user %q", word, status, got.Headers.Get("X-User"))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if status, _, err := a.ask(ctx, vip("b"), "b", "/free", permission, "deny"); status != 200 {
			t.Errorf("%s isn't asked: got %d, %v, want 200", provider, status, err)
		}
	}
	// Rules about paths deny nothing of TCP, but a gRPC provider is asked about it.
	if got, err := exchange(ctx, a, vip("b")+":9000", "hello\n"); err != nil || got != "hello\n" {
		t.Errorf("TCP that is let pass: %q, %v", got, err)
	}
	if got, err := exchange(ctx, a, vip("b")+":9001", "hello\n"); err == nil {
		t.Errorf("TCP that is denied: %q", got)
	}
}
