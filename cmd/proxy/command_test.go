package main

import (
	"bytes"
	"strings"
	"testing"
)

// TestCommandLineSaysWhatIsWrong: a word or value that can't be meant is named,
// and nothing is started.
func TestCommandLineSaysWhatIsWrong(t *testing.T) {
	const unknown = `{"nodee": {}}`
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"an unknown command is named", []string{"bogus"}, `unknown command "bogus"`},
		{"a word too many is named", []string{"--mode", "validate", "--config-yaml", "{}", "extra"}, `unexpected argument "extra"`},
		{"a request says what it takes", []string{"request", "stats"}, "METHOD PATH [BODY], not 1"},
		{"no bootstrap", []string{}, "--config-path"},
		{"a mode that is not done is refused", []string{"--mode", "init_only", "--config-yaml", "{}"}, `--mode "init_only"`},
		{"an unknown flag is named", []string{"--mod", "validate", "--config-yaml", "{}"}, "unknown flag: --mod"},
		{"a level that isn't one", []string{"--mode", "validate", "-l", "verbose", "--config-yaml", "{}"}, "verbose"},
		{"less than no worker", []string{"--mode", "validate", "--concurrency", "-3", "--config-yaml", "{}"}, "--concurrency -3"},
		{"no way to drain", []string{"--mode", "validate", "--drain-strategy", "slow", "--config-yaml", "{}"}, `--drain-strategy "slow"`},
		{"a time before now", []string{"--mode", "validate", "--drain-time-s", "-5", "--config-yaml", "{}"}, "--drain-time-s -5"},
		{"a flush before now", []string{"--mode", "validate", "--file-flush-interval-msec", "-5", "--config-yaml", "{}"}, "--file-flush-interval-msec -5"},
		{"an unknown field is named", []string{"--mode", "validate", "--config-yaml", unknown}, `"nodee"`},
		{"unless it may be left out", []string{"--mode", "validate", "--allow-unknown-static-fields", "--config-yaml", unknown}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			root := rootCommand(host{lookup: func(string) (string, bool) { return "", false }, stdout: &out, stderr: &out})
			root.SetArgs(c.args)
			err := root.Execute()
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}
