// Package archtest holds the rules of ARCHITECTURE.md as tests: who may import
// whom, what no package may contain, and how large code may grow. It has no
// code of its own and nobody imports it.
package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "sluice"

type pkg struct {
	ImportPath, Dir, Name, Doc string
	Imports, Deps, GoFiles     []string
	TestImports, TestGoFiles   []string
	XTestImports, XTestGoFiles []string
}

func list(t *testing.T) map[string]pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,Doc,Imports,Deps,GoFiles,TestGoFiles", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	pkgs := map[string]pkg{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs[strings.TrimPrefix(p.ImportPath, module+"/")] = p
	}
	return pkgs
}

func isStd(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".") && first != module
}

func allowed(path string, r row) bool {
	if isStd(path) {
		return true
	}
	if own, ok := strings.CutPrefix(path, module+"/"); ok {
		return slices.ContainsFunc(r.ours, func(o string) bool {
			dir, below := strings.CutSuffix(o, "*")
			return own == o || below && strings.HasPrefix(own, dir)
		})
	}
	return slices.ContainsFunc(r.third, func(m string) bool { return strings.HasPrefix(path, m) })
}

func TestImportsFollowTheTable(t *testing.T) {
	pkgs := list(t)
	for _, r := range table {
		p, ok := pkgs[r.pkg]
		if !ok {
			t.Errorf("the table names %s, which does not exist: mend the table", r.pkg)
			continue
		}
		for _, imp := range p.Imports {
			if !allowed(imp, r) {
				t.Errorf("%s imports %s\n\tnot allowed: %s\n\tmove the code, or change the table and ARCHITECTURE.md together", r.pkg, imp, r.reason)
			}
		}
	}
}

func TestDataPathNeverReachesControl(t *testing.T) {
	pkgs := list(t)
	for _, name := range dataPath {
		p, ok := pkgs[name]
		if !ok {
			t.Errorf("the rule names %s, which does not exist", name)
			continue
		}
		for _, dep := range p.Deps {
			for _, f := range forbiddenOnDataPath {
				if dep == f || strings.HasPrefix(dep, f+"/") && f != "net/http" {
					t.Errorf("%s reaches %s: the data path carries no control code", name, dep)
				}
			}
		}
	}
}

func TestUpstreamNeverImportsListener(t *testing.T) {
	for name, p := range list(t) {
		if name != "upstream" && !strings.HasPrefix(name, "upstream/") {
			continue
		}
		for _, dep := range p.Deps {
			if dep == module+"/listener" || strings.HasPrefix(dep, module+"/listener/") {
				t.Errorf("%s reaches %s: requests flow from listener to upstream", name, dep)
			}
		}
	}
}

func TestNoDrawerPackages(t *testing.T) {
	drawers := []string{"util", "utils", "common", "helpers", "helper", "types", "model", "models", "api", "misc", "base"}
	for name, p := range list(t) {
		if slices.Contains(drawers, p.Name) {
			t.Errorf("package %s: name it for a stage or a noun an operator knows", name)
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for name, p := range list(t) {
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("package %s has no package comment", name)
		}
	}
}
