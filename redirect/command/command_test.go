package command

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/redirect"
)

// injectedArgs are an injected pod's, word for word.
func injectedArgs() []string {
	return []string{"-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "*",
		"-d", "15090,15021,15020", "--log_output_level=default:info"}
}

func dryRun(t *testing.T, vars map[string]string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := execute(fakeHost(vars, &out), append([]string{"-n"}, args...)...); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestInjectedArguments(t *testing.T) {
	out := dryRun(t, nil, injectedArgs()...)
	for _, want := range []string{
		"-A PREROUTING -p tcp -j ISTIO_INBOUND\n",
		"-A ISTIO_INBOUND -p tcp --dport 15090 -j RETURN\n-A ISTIO_INBOUND -p tcp --dport 15021 -j RETURN\n-A ISTIO_INBOUND -p tcp --dport 15020 -j RETURN\n-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT\n",
		"-A ISTIO_OUTPUT -j ISTIO_REDIRECT\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}

func TestUnknownFlagsAndStrayWordsAreIgnored(t *testing.T) {
	plain := dryRun(t, nil, injectedArgs()...)
	odd := append(injectedArgs(), "--from-the-future=1", "--another", "value", "-w", "stray")
	if got := dryRun(t, nil, odd...); got != plain {
		t.Errorf("got:\n%s\nwant:\n%s", got, plain)
	}
}

func TestWhatMustHaveBeenMeantIsNotIgnored(t *testing.T) {
	for _, c := range []struct {
		args       string
		says, errs string
	}{
		{"-p 15001 --from-the-future=1 --another value", "ignoring unknown flag --from-the-future\nignoring unknown flag --another\n", ""},
		{"-p 15001 --dryrun", "", "unknown flag --dryrun: --dry-run?"},
		{"--clean", "", "unknown flag --clean: --cleanup-only?"},
		{"--dry-run --cleanup-only --version --help -h", "", ""},
		{"-w", "ignoring unknown flag -w\n", ""},
		{"-- --dryrun", "", ""},
	} {
		var b strings.Builder
		cmd := New(Host{})
		cmd.Version = "v"
		cmd.InitDefaultHelpFlag()
		cmd.InitDefaultVersionFlag()
		err := misspelt(cmd, strings.Fields(c.args), &b)
		if b.String() != c.says || (err == nil) != (c.errs == "") || err != nil && err.Error() != c.errs {
			t.Errorf("%s: says %q, error %v", c.args, b.String(), err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	for rule, tc := range map[string]struct {
		vars   map[string]string
		args   []string
		want   string
		absent string
	}{
		"replaces a default":                 {map[string]string{"INBOUND_CAPTURE_PORT": "7"}, nil, "--to-ports 7\n", "15006"},
		"loses to an argument":               {map[string]string{"INBOUND_CAPTURE_PORT": "7"}, []string{"-z", "8"}, "--to-ports 8\n", "--to-ports 7\n"},
		"loses to an empty argument":         {map[string]string{"ISTIO_SERVICE_CIDR": "*"}, []string{"-i", ""}, "ISTIO_OUTPUT", "-A ISTIO_OUTPUT -j ISTIO_REDIRECT"},
		"has no ENVOY_PORT":                  {map[string]string{"ENVOY_PORT": "7"}, nil, "--to-ports 15001\n", "--to-ports 7\n"},
		"DNS capture by proxy metadata":      {map[string]string{"ISTIO_META_DNS_CAPTURE": "true"}, []string{"--capture-all-dns"}, "--to-ports 15053", ""},
		"DNS capture by proxy metadata, off": {map[string]string{"ISTIO_META_DNS_CAPTURE": "false"}, []string{"--capture-all-dns"}, "COMMIT", "15053"},
		"own name before the alias":          {map[string]string{"REDIRECT_DNS": "false", "ISTIO_META_DNS_CAPTURE": "true"}, []string{"--capture-all-dns"}, "COMMIT", "15053"},
		"INVALID_DROP":                       {map[string]string{"INVALID_DROP": "true"}, nil, "ISTIO_DROP", ""},
		"an empty switch is off":             {map[string]string{"INVALID_DROP": ""}, nil, "COMMIT", "ISTIO_DROP"},
		"loopback range":                     {map[string]string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": "127.0.0.1/8"}, nil, "-d 127.0.0.1/8 -j RETURN", "/32 -j RETURN\n-A ISTIO_OUTPUT -d"},
		"proxy user":                         {map[string]string{"PROXY_UID": "5"}, nil, "--uid-owner 5 ", "1337"},
		"group follows user":                 {nil, []string{"-u", "6"}, "--gid-owner 6 ", "1337"},
	} {
		t.Run(rule, func(t *testing.T) {
			out := dryRun(t, tc.vars, tc.args...)
			if !strings.Contains(out, tc.want) || tc.absent != "" && strings.Contains(out, tc.absent) {
				t.Errorf("want %q and not %q in:\n%s", tc.want, tc.absent, out)
			}
		})
	}
}

func TestProxyUserComesFromItsName(t *testing.T) {
	var out bytes.Buffer
	h := fakeHost(map[string]string{"ENVOY_USER": "someone"}, &out)
	h.UserID = func(name string) (string, error) { return map[string]string{"someone": "77"}[name], nil }
	if err := execute(h, "-n"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "--uid-owner 77 ") {
		t.Errorf("user 77 is missing in:\n%s", out.String())
	}
}

func TestBadInputNamesFlagAndReason(t *testing.T) {
	for rule, tc := range map[string]struct {
		vars map[string]string
		args []string
		want []string
	}{
		"port word":          {nil, []string{"-p", "http"}, []string{"envoy-port", `"http"`, "1 to 65535"}},
		"port 0":             {nil, []string{"-b", "80,0"}, []string{"istio-inbound-ports", `"0"`}},
		"port too big":       {nil, []string{"-o", "70000"}, []string{"istio-local-outbound-ports-exclude", `"70000"`}},
		"port range":         {nil, []string{"-q", "80:90"}, []string{"istio-outbound-ports", `"80:90"`}},
		"prefix":             {nil, []string{"-i", "10.0.0.0/33"}, []string{"istio-service-cidr", `"10.0.0.0/33"`}},
		"all excluded":       {nil, []string{"-x", "*"}, []string{"istio-service-exclude-cidr", `"*"`}},
		"mode":               {nil, []string{"-m", "tproxy"}, []string{"istio-inbound-interception-mode", "tproxy"}},
		"mark":               {nil, []string{"-m", "TPROXY", "-t", "x"}, []string{"istio-inbound-tproxy-mark", `"x"`}},
		"table":              {nil, []string{"-m", "TPROXY", "-r", "x"}, []string{"istio-inbound-tproxy-route-table", `"x"`}},
		"binary":             {nil, []string{"--force-iptables-binary", "new"}, []string{"force-iptables-binary", `"new"`, "legacy"}},
		"variable":           {map[string]string{"ISTIO_META_DNS_CAPTURE": "maybe"}, nil, []string{"ISTIO_META_DNS_CAPTURE", "redirect-dns", "maybe"}},
		"loopback range":     {map[string]string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": "10.0.0.0/8"}, nil, []string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR"}},
		"two loopbacks":      {map[string]string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": "127.0.0.1/32,127.0.0.2/32"}, nil, []string{"ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR", "one"}},
		"groups both ways":   {map[string]string{"ISTIO_OUTBOUND_OWNER_GROUPS": "1", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "2"}, nil, []string{"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE"}},
		"CNI mode":           {nil, []string{"--cni-mode"}, []string{"cni-mode", "not supported"}},
		"no such namespace":  {nil, []string{"--network-namespace", "/nonexistent"}, []string{"network-namespace", "/nonexistent"}},
		"unreadable servers": {nil, []string{"--redirect-dns"}, []string{"redirect-dns"}},
		"switch":             {nil, []string{"--drop-invalid=perhaps"}, []string{"drop-invalid", "perhaps"}},
	} {
		t.Run(rule, func(t *testing.T) {
			err := execute(fakeHost(tc.vars, &bytes.Buffer{}), append([]string{"-n"}, tc.args...)...)
			if err == nil {
				t.Fatal("no error")
			}
			for _, word := range tc.want {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("error %q doesn't say %q", err, word)
				}
			}
			if code := ExitCode(err); code != 1 {
				t.Errorf("exit code is %d, want 1", code)
			}
		})
	}
}

func TestExitCodes(t *testing.T) {
	for want, err := range map[int]error{0: nil, 1: errors.New("x"), 126: fmt.Errorf("checking: %w", redirect.ErrNotRedirected)} {
		if got := ExitCode(err); got != want {
			t.Errorf("%v: got %d, want %d", err, got, want)
		}
	}
}

func TestDryRunFileCollectsTheToolsInput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules")
	vars := map[string]string{"DRY_RUN_FILE_PATH": path}
	dryRun(t, vars, injectedArgs()...)
	dryRun(t, vars, injectedArgs()...)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "* nat\n"); n != 2 || strings.Contains(string(text), "iptables-save") {
		t.Errorf("want two inputs and no command in:\n%s", text)
	}
}
