//go:build !purego

package rsakey

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// TestFIPSFallsBack runs the choice in a process in FIPS mode.
func TestFIPSFallsBack(t *testing.T) {
	const inside = "RSAKEY_TEST_INSIDE"
	if os.Getenv(inside) != "" {
		if got := fmt.Sprintf("%T", Fast(fixed(t, "key1"))); got != "*rsa.PrivateKey" {
			t.Errorf("in FIPS mode: %s", got)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFIPSFallsBack$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1", "GODEBUG=fips140=on")
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("%v\n%s", err, out)
	}
}
