package conform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// These tests prove that the runner can fail.

func loadedCase(t *testing.T, name string) *caseFile {
	t.Helper()
	c, err := loadCase(casesRoot, name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func judged(t *testing.T, s setup, c *caseFile, meant meantDifference) result {
	t.Helper()
	r, err := judge(t.Context(), s, c, meant)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestEveryLeafOfARecordCounts changes each value of records alone: each is one
// difference.
func TestEveryLeafOfARecordCounts(t *testing.T) {
	seen := map[string]int{}
	for _, name := range namesOf(t, strings.Fields(defaultAreas+" "+moreAreas)) {
		if area := filepath.Dir(name); seen[area] >= 3 {
			continue
		} else {
			seen[area]++
		}
		original := plain(loadedCase(t, name).expect, "")
		record := plain(loadedCase(t, name).expect, "").(object) // read again: spoiling must not reach the original
		leaves := 0
		spoilEach(record, func() {
			leaves++
			if got := differences(original, record, ""); len(got) != 1 {
				t.Errorf("%s: leaf %d changed alone gives %d differences", name, leaves, len(got))
			}
		})
		if leaves == 0 {
			t.Errorf("%s: its record has no leaves", name)
		}
	}
}

// spoilEach changes one leaf after the other in place and calls f between.
func spoilEach(v any, f func()) {
	each := func(old any, set func(any)) {
		switch old := old.(type) {
		case map[string]any:
			if len(old) > 0 {
				spoilEach(old, f)
				return
			}
		case []any:
			if len(old) > 0 {
				spoilEach(old, f)
				return
			}
		}
		set(spoiled(old))
		f()
		set(old)
	}
	switch v := v.(type) {
	case map[string]any:
		for k, old := range v {
			each(old, func(n any) { v[k] = n })
		}
	case []any:
		for i, old := range v {
			each(old, func(n any) { v[i] = n })
		}
	}
}

func spoiled(old any) any {
	if s, ok := old.(string); ok {
		return s + "!"
	}
	return "wrong"
}

// TestAWrongExpectationFails plays the smoke case against a record with another
// status, and with that difference meant.
func TestAWrongExpectationFails(t *testing.T) {
	s := setup{command: append([]string{proxyBinary(t)}, arguments...), pki: freshPKI(t)}
	wrong := func() *caseFile {
		c := loadedCase(t, "smoke/one-request")
		c.expect["steps"].([]any)[0].(object)["status"] = 201
		return c
	}
	r := judged(t, s, wrong(), meantDifference{})
	if len(r.diffs) != 1 || r.diffs[0].path != "steps.0.status" || r.passed() {
		t.Errorf("a record with another status: %s", r)
	}
	if r := judged(t, s, wrong(), meantDifference{Paths: []string{"steps.*.status"}}); !r.passed() {
		t.Errorf("a meant difference is not accepted: %s", r)
	}
	r = judged(t, s, loadedCase(t, "smoke/one-request"), meantDifference{Paths: []string{"steps.0.body"}})
	if r.passed() || !strings.Contains(fmt.Sprint(r.problems), "none now: steps.0.body") {
		t.Errorf("a meant difference that is none passes: %s", r)
	}
}

// TestAWrongProxyFails plays cases against our proxy with one response header too
// many.
func TestAWrongProxyFails(t *testing.T) {
	s := setup{command: append([]string{proxyBinary(t)}, arguments...), pki: freshPKI(t), mutate: oneHeaderMore(t)}
	for _, name := range []string{"smoke/one-request", "smoke/churn"} {
		r := judged(t, s, loadedCase(t, name), meantDifference{})
		found := false
		for _, d := range r.diffs {
			found = found || strings.HasSuffix(d.path, ".headers.x-wrong")
		}
		if !found {
			t.Errorf("%s does not see a header too many: %s", name, r)
		}
	}
}

func oneHeaderMore(t *testing.T) func([]byte) []byte {
	return func(bootstrap []byte) []byte {
		old := []byte(`"route_config": {`)
		if !bytes.Contains(bootstrap, old) {
			t.Fatalf("no route_config in %s", bootstrap)
		}
		header, err := json.Marshal([]any{object{"header": object{"key": "x-wrong", "value": "1"}}})
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Replace(bootstrap, old, []byte(`"route_config": {"response_headers_to_add": `+string(header)+`,`), 1)
	}
}

// TestWrongProcessesFail starts what exits, hangs, crashes or leaves processes.
func TestWrongProcessesFail(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for processes that hang")
	}
	proxy := proxyBinary(t) + " " + strings.Join(arguments, " ")
	for _, wrong := range []struct{ name, script, said string }{
		{"exits at once", "exit 3", "start"},
		{"never gets ready", "exec sleep 60", "not ready"},
		{"crashes later", proxy + ` "$@" & P=$!; (sleep 0.6; kill -SEGV $P) & wait $P; kill -SEGV $$`, "crash"},
		{"ignores SIGTERM", `trap "" TERM; ` + proxy + ` "$@" & while :; do sleep 1; done`, "hang"},
		{"leaves a process", "sleep 60 & exec " + proxy + ` "$@"`, "leftover"},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			t.Parallel()
			binary := filepath.Join(t.TempDir(), "wrong")
			if err := os.WriteFile(binary, []byte("#!/bin/sh\n"+wrong.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			c := loadedCase(t, "smoke/one-request")
			c.LimitS = 4
			pause := loadedCase(t, "smoke/churn").Steps.Content[2] // a sleep: time to crash in
			pause.Content[1].Value = "1.2"
			c.Steps.Content = append(c.Steps.Content, pause)
			r := judged(t, setup{command: proxyCommand{binary}, pki: freshPKI(t)}, c, meantDifference{})
			if r.passed() || !strings.Contains(r.String(), wrong.said) {
				t.Errorf("a proxy that %s is not told by %q: %s", wrong.name, wrong.said, r)
			}
		})
	}
}

// TestMisspeltWordsBreakACase reads cases with unknown words.
func TestMisspeltWordsBreakACase(t *testing.T) {
	good, err := os.ReadFile(filepath.Join(casesRoot, "smoke/one-request.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{"- http: {to: L1", "- http: {too: L1"},
		{"- http: {to: L1", "- htpp: {to: L1"},
		{"- http: {to: L1", "- sleep: 1\n  http: {to: L1"},
		{"respond: [{status:", "respond: [{staus:"},
		{"observe: {stats", "observe: {stat"},
		{"${a}", "${b}"},
		{"why:", "because:"},
	} {
		root := t.TempDir()
		bad := strings.Replace(string(good), change[0], change[1], 1)
		if bad == string(good) {
			t.Errorf("%q is not in the case", change[0])
		}
		if err := os.WriteFile(filepath.Join(root, "bad.yaml"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := loadCase(root, "bad"); err == nil {
			t.Errorf("a case with %q is read as if it meant something", change[1])
		}
	}
}
