package command

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// update rewrites the golden files from what the code says now. They were
// recorded from istio-init, so a change has to be justified.
var update = flag.Bool("update", false, "rewrite the golden files")

type goldenCase struct {
	Flags       map[string]any `json:"flags"`
	Environment map[string]any `json:"environment"`
}

// args and host turn a recorded case into a command line and a machine.
func (c goldenCase) args() []string {
	args := []string{"--dry-run"}
	for name, value := range c.Flags {
		args = append(args, fmt.Sprintf("--%s=%v", name, value))
	}
	return args
}

func (c goldenCase) host(out *bytes.Buffer) Host {
	h := fakeHost(nil, out)
	vars := map[string]string{}
	conf := ""
	for name, value := range c.Environment {
		switch name {
		case "(dual-stack pod)":
			h.Addrs = addrs("fd00::1", "10.0.0.1")
		case "(resolv.conf nameservers, IPv4)", "(resolv.conf nameservers, IPv6)":
			for _, s := range value.([]any) {
				conf += fmt.Sprintf("nameserver %v\n", s)
			}
		default:
			vars[name] = value.(string)
		}
	}
	h.LookupEnv = lookup(vars)
	h.ResolvConf = func() (string, error) { return conf, nil }
	return h
}

func lookup(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := vars[name]; return v, ok }
}

func addrs(list ...string) func() ([]netip.Addr, error) {
	return func() ([]netip.Addr, error) {
		var out []netip.Addr
		for _, a := range list {
			out = append(out, netip.MustParseAddr(a))
		}
		return out, nil
	}
}

func fakeHost(vars map[string]string, out *bytes.Buffer) Host {
	return Host{
		LookupEnv:  lookup(vars),
		Addrs:      addrs("127.0.0.1", "10.0.0.1"),
		ResolvConf: func() (string, error) { return "", os.ErrNotExist },
		UserID:     func(string) (string, error) { return "", os.ErrNotExist },
		Stdout:     out,
		Stderr:     &bytes.Buffer{},
	}
}

func execute(h Host, args ...string) error {
	c := New(h)
	c.SetArgs(args)
	return c.ExecuteContext(context.Background())
}

func TestDryRunPrintsWhatIstioInitDoes(t *testing.T) {
	dir := filepath.Join("..", "testdata", "cases")
	text, err := os.ReadFile(filepath.Join(dir, "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]goldenCase{}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 20 {
		t.Fatalf("%d cases, want 20 or more", len(cases))
	}
	for name, c := range cases {
		t.Run(name+"/iptables", func(t *testing.T) { c.compare(t, filepath.Join(dir, name+".iptables")) })
		t.Run(name+"/nftables", func(t *testing.T) {
			c.compare(t, filepath.Join(dir, name+".nftables"), "--native-nftables")
		})
	}
}

func (c goldenCase) compare(t *testing.T, path string, more ...string) {
	var out bytes.Buffer
	if err := execute(c.host(&out), append(c.args(), more...)...); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("want -, got +:\n%s", d)
	}
}
