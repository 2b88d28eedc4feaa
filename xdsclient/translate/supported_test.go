package translate

import (
	"flag"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

var update = flag.Bool("update", false, "write docs/SUPPORTED.md")

func TestSupportedListIsCurrent(t *testing.T) {
	const golden = "../../docs/SUPPORTED.md"
	got := Default().Supported()
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the tables have changed: run go test -run %s -update and look at the difference", t.Name())
	}
}

// Names without a Go type: sent as TypedStruct only.
var structOnly = []string{metadataExchangeURL, "io.istio.http.peer_metadata.Config"}

func TestEveryTableEntryIsALinkedMessage(t *testing.T) {
	r := Default()
	var names []string
	names = append(names, sortedKeys(r.NetworkFilters)...)
	names = append(names, sortedKeys(r.HTTPFilters)...)
	names = append(names, sortedKeys(r.RouteFilters)...)
	names = append(names, sortedKeys(r.ListenerFilters)...)
	names = append(names, sortedKeys(r.DownstreamSockets)...)
	names = append(names, sortedKeys(r.UpstreamSockets)...)
	names = append(names, sortedKeys(r.LBPolicies)...)
	names = append(names, sortedKeys(r.AccessLoggers)...)
	names = append(names, sortedKeys(r.Tracers)...)
	for _, n := range names {
		if strings.Contains(strings.Join(structOnly, " "), n) {
			continue
		}
		if _, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName(n)); err != nil {
			t.Errorf("%s: %v", n, err)
		}
	}
}

func TestIgnoredIsNeverSecurity(t *testing.T) {
	for n, why := range Default().Ignored {
		for _, word := range []string{"authz", "authn", "rbac", "jwt", "oauth", "csrf", "tls", "ratelimit"} {
			if strings.Contains(n, word) {
				t.Errorf("%s is ignored", n)
			}
		}
		if !strings.HasSuffix(why, ".") || strings.Count(why, ".") != 1 {
			t.Errorf("%s: the reason isn't one sentence: %q", n, why)
		}
	}
}
