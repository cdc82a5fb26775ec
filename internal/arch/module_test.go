package arch_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// modulePath is the import path of the module's root package.
const modulePath = "github.com/lockd/lockd"

// rootDir is the module's root, seen from this package's folder.
const rootDir = "../.."

// source is one Go file of the module.
type source struct {
	path   string // slash-separated, from the module's root
	text   string
	fset   *token.FileSet
	file   *ast.File
	nested bool // in a module of its own
}

// pkg is the folder of the package, "." for the module's root.
func (s source) pkg() string { return path.Dir(s.path) }

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) line(pos token.Pos) int { return s.fset.Position(pos).Line }

// finding is one thing to put right: where, what, and what to do.
type finding struct {
	path string
	line int
	text string
}

func (f finding) String() string {
	if f.line == 0 {
		return f.path + ": " + f.text
	}
	return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.text)
}

func (s source) finding(pos token.Pos, format string, args ...any) finding {
	return finding{s.path, s.line(pos), fmt.Sprintf(format, args...)}
}

// report fails the test with every finding, in order of place.
func report(t *testing.T, findings []finding) {
	t.Helper()
	slices.SortFunc(findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.line, b.line),
			cmp.Compare(a.text, b.text))
	})
	for _, f := range findings {
		t.Error(f)
	}
}

// expect fails the test unless the findings and the texts match one to one, in any order: each
// finding contains its text.
func expect(t *testing.T, findings []finding, texts ...string) {
	t.Helper()
	left := slices.Clone(findings)
	for _, text := range texts {
		i := slices.IndexFunc(left, func(f finding) bool {
			return strings.Contains(f.String(), text)
		})
		if i < 0 {
			t.Errorf("no finding says %q", text)
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	for _, f := range left {
		t.Errorf("not expected: %s", f)
	}
}

// fromText makes a source of a text, as if it stood in the module under the path.
func fromText(t *testing.T, name, text string) source {
	t.Helper()
	s, err := parse(name, text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parse(name, text string) (source, error) {
	fset := token.NewFileSet()
	const mode = parser.ParseComments | parser.SkipObjectResolution
	file, err := parser.ParseFile(fset, name, text, mode)
	return source{path: name, text: text, fset: fset, file: file}, err
}

// module returns every Go file of the module and of the command, whatever its build tags. The
// command is a module for its dependencies only, and keeps the same rules.
func module(t *testing.T) []source {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(tree(t)), func(s source) bool { return s.nested })
}

// tree returns the files of module, and of all nested modules.
func tree(t *testing.T) []source {
	t.Helper()
	sources, err := readTree()
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

var readTree = sync.OnceValues(func() ([]source, error) {
	var sources []source
	var nested []string // folders that have a module each
	err := filepath.WalkDir(rootDir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || name == rootDir:
			return err
		case d.IsDir():
			if base := d.Name(); base == "testdata" || base == "vendor" ||
				strings.ContainsAny(base[:1], "._") {
				return filepath.SkipDir
			}
			_, err := os.Stat(filepath.Join(name, "go.mod"))
			if err == nil && name != filepath.Join(rootDir, "cmd", "lockd") {
				nested = append(nested, name+string(filepath.Separator))
			}
			return nil
		case filepath.Ext(name) != ".go":
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(rootDir, name)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(rel), string(text))
		s.nested = slices.ContainsFunc(nested, func(dir string) bool {
			return strings.HasPrefix(name, dir)
		})
		sources = append(sources, s)
		return err
	})
	return sources, err
})

// document returns a file of the module that is not Go.
func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(rootDir, filepath.FromSlash(name)))
	if err != nil {
		t.Fatalf("%s: it has to be there: %v", name, err)
	}
	return string(text)
}

// importPath returns the path that an import names.
func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value
	}
	return p
}

// nameOf returns the name by which the file knows an imported package, "" if it does not.
func (s source) nameOf(imported string) string {
	for _, spec := range s.file.Imports {
		switch {
		case importPath(spec) != imported:
		case spec.Name != nil:
			return spec.Name.Name
		default:
			return path.Base(imported)
		}
	}
	return ""
}
