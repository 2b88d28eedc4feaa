package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// sizeCeiling is what the proxy's file may take, in bytes. The rest of what it has
// is mostly code made from protobufs and their validation, which is Envoy's too.
const sizeCeiling = 28 << 20

func TestProxyStaysSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("links the proxy")
	}
	out := filepath.Join(t.TempDir(), "proxy")
	build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", out, "./cmd/proxy") // as the Makefile does
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	info, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d bytes", info.Size()); info.Size() > sizeCeiling {
		t.Errorf("the proxy has %d bytes, the ceiling is %d: a new dependency, or one that looks up methods by name (go build -ldflags=-dumpdep, ReflectMethod)?", info.Size(), sizeCeiling)
	}
}
