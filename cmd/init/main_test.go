package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "init")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	return bin
}

// script runs shell text in a fresh network namespace with $INIT as the program.
func script(t *testing.T, bin, text string) (string, int) {
	t.Helper()
	if testing.Short() {
		t.Skip("makes a network namespace")
	}
	cmd := exec.Command("unshare", "--net", "sh", "-fc", "ip link set lo up; ip link add eth0 type veth peer name eth1; "+
		"ip addr add 10.244.0.99/24 dev eth0; ip link set eth0 up; ip link set eth1 up; "+text)
	cmd.Env = append(os.Environ(), "INIT="+bin)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("running %q (needs root, unshare, ip, iptables): %v", text, err)
	}
	if t.Failed() || testing.Verbose() {
		t.Log(stderr.String())
	}
	return string(out), cmd.ProcessState.ExitCode()
}

const injected = `-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -x "" -b * -d 15090,15021,15020 --log_output_level=default:info`

func TestInjectedContainerRunsTwice(t *testing.T) {
	bin := build(t)
	for _, word := range []string{"istio-iptables ", ""} {
		once, code := script(t, bin, "$INIT "+word+injected+" && iptables-save -t nat | grep -v '^#'")
		if code != 0 || strings.Count(once, "ISTIO_") < 20 {
			t.Fatalf("exit %d, rules:\n%s", code, once)
		}
		twice, code := script(t, bin, "$INIT "+word+injected+" && $INIT "+word+injected+" && iptables-save -t nat | grep -v '^#'")
		if code != 0 || once != twice {
			t.Errorf("second run: exit %d, rules:\n%s", code, twice)
		}
		left, code := script(t, bin, "$INIT "+word+injected+" && $INIT "+word+injected+" --cleanup-only && iptables-save")
		if code != 0 || strings.Contains(left, "ISTIO") || strings.Contains(left, "-A ") {
			t.Errorf("clean-up: exit %d, left:\n%s", code, left)
		}
	}
}

func TestValidationContainer(t *testing.T) {
	bin := build(t)
	check := "$INIT istio-iptables " + injected + " --run-validation --skip-rule-apply --probe-timeout 1500ms"
	asProxy := "setpriv --reuid 1337 --regid 1337 --clear-groups " + check
	if _, code := script(t, bin, "cp $INIT /tmp/sluice-init.$$; chmod 755 /tmp/sluice-init.$$; INIT=/tmp/sluice-init.$$; "+asProxy+"; c=$?; rm $INIT; exit $c"); code != 126 {
		t.Errorf("without rules the exit code is %d, want 126", code)
	}
	if _, code := script(t, bin, "$INIT "+injected+" || exit 9; cp $INIT /tmp/sluice-init.$$; chmod 755 /tmp/sluice-init.$$; INIT=/tmp/sluice-init.$$; "+asProxy+"; c=$?; rm $INIT; exit $c"); code != 0 {
		t.Errorf("with rules the exit code is %d, want 0", code)
	}
}

func TestBadArgumentExitsWithOne(t *testing.T) {
	if _, code := script(t, build(t), "$INIT istio-iptables -b http"); code != 1 {
		t.Errorf("exit code is %d, want 1", code)
	}
}

// The init container has to be small and start fast.
func TestNoControlPlaneIsLinked(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "sluice/redirect\n") {
		t.Fatalf("the list is not ours:\n%s", out)
	}
	for line := range strings.Lines(string(out)) {
		for _, part := range []string{"google.golang.org/", "github.com/envoyproxy/", "sluice/internal/", "sluice/xdsclient"} {
			if strings.HasPrefix(line, part) {
				t.Errorf("links %s", line)
			}
		}
	}
}
