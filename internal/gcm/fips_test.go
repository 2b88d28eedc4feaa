//go:build !purego

package gcm

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// TestFIPSFallsBack runs the choice in a process in FIPS mode.
func TestFIPSFallsBack(t *testing.T) {
	const inside = "GCM_TEST_INSIDE"
	if os.Getenv(inside) != "" {
		a, err := New(make([]byte, 16))
		if got := fmt.Sprintf("%T", a); err != nil || got != "*gcm.standard" {
			t.Errorf("in FIPS mode: %s, %v", got, err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFIPSFallsBack$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1", "GODEBUG=fips140=on")
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("%v\n%s", err, out)
	}
}
