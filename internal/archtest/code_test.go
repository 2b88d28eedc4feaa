package archtest

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	maxFile = 600 // lines; a longer file says why in its first 15 lines ("long because")
	maxFunc = 80  // lines; a longer function says why in its comment ("long because")
)

type source struct {
	path string
	text []byte
	fset *token.FileSet
	file *ast.File
}

// sources parses the shipped Go files (no tests, no generated ones).
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	for _, p := range list(t) {
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, path, text, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if !ast.IsGenerated(f) {
				all = append(all, source{path, text, fset, f})
			}
		}
	}
	return all
}

func TestNoInitAndNoBlankImports(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: init(): wiring belongs in cmd", s.path)
			}
		}
		for _, i := range s.file.Imports {
			if i.Name != nil && i.Name.Name == "_" && i.Path.Value != `"embed"` {
				t.Errorf("%s: blank import of %s", s.path, i.Path.Value)
			}
		}
	}
}

// TestNoMutablePackageState finds assignments to package-level variables.
func TestNoMutablePackageState(t *testing.T) {
	for _, s := range sources(t) {
		names := map[string]bool{}
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				for _, n := range spec.(*ast.ValueSpec).Names {
					names[n.Name] = true
				}
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			a, ok := n.(*ast.AssignStmt)
			if !ok || a.Tok == token.DEFINE {
				return true
			}
			for _, lhs := range a.Lhs {
				if id, ok := lhs.(*ast.Ident); ok && names[id.Name] && id.Obj != nil && id.Obj.Kind == ast.Var && s.file.Scope.Lookup(id.Name) == id.Obj {
					t.Errorf("%s: package variable %s is assigned to", s.fset.Position(a.Pos()), id.Name)
				}
			}
			return true
		})
	}
}

var longBecause = regexp.MustCompile(`(?i)long because`)

func TestSizesStayReadable(t *testing.T) {
	var funcs, files []int
	for _, s := range sources(t) {
		lines := bytes.Count(s.text, []byte("\n"))
		files = append(files, lines)
		head := s.text
		if parts := bytes.SplitN(s.text, []byte("\n"), 16); len(parts) == 16 {
			head = bytes.Join(parts[:15], []byte("\n"))
		}
		if lines > maxFile && !longBecause.Match(head) {
			t.Errorf("%s has %d lines (limit %d): split it, or say at its top why it is long", s.path, lines, maxFile)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
			funcs = append(funcs, n)
			if n > maxFunc && !longBecause.MatchString(f.Doc.Text()) {
				t.Errorf("%s: %s has %d lines (limit %d): split it, or say why", s.path, f.Name.Name, n, maxFunc)
			}
		}
	}
	t.Log(report("functions", funcs), report("files", files))
}

func report(what string, n []int) string {
	if len(n) == 0 {
		return what + ": none"
	}
	slices.Sort(n)
	return fmt.Sprintf("%s: %d, median %d, p90 %d, max %d lines;", what, len(n), n[len(n)/2], n[len(n)*9/10], n[len(n)-1])
}

func TestEnvironmentIsReadOnlyInCmd(t *testing.T) {
	read := regexp.MustCompile(`\bos\.(Getenv|LookupEnv|Environ)\(`)
	for _, s := range sources(t) {
		ours := !strings.Contains(s.path, "/cmd/") && !strings.Contains(s.path, "/bench/") && !strings.Contains(s.path, "/meshtest/")
		if ours && read.Match(s.text) {
			t.Errorf("%s reads the environment: pass values down from cmd", s.path)
		}
	}
}
