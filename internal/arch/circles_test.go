//go:build !race

// Under the race detector the go command would build every package once more, without it.

package arch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxCircle is how many files of a package may use each other, directly or through other files. To
// change one of them, one has to know them all.
const maxCircle = 8

func TestCircles(t *testing.T) {
	built, imported := buildList(t)
	var sources []source
	for _, s := range module(t) {
		if built[s.path] {
			sources = append(sources, s)
		}
	}
	report(t, checkCircles(sources, imported))
}

// buildList asks the go command for the files that a build for this system has, and for what the
// compiler has exported.
func buildList(t *testing.T) (built map[string]bool, imported types.Importer) {
	t.Helper()
	var out []byte
	for _, dir := range []string{rootDir, filepath.Join(rootDir, "cmd", "lockd")} {
		list := exec.Command("go", "list", "-export", "-deps",
			"-json=ImportPath,Export,GoFiles", "./...")
		list.Dir, list.Stderr = dir, os.Stderr
		packages, err := list.Output()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, packages...)
	}
	built, exports := make(map[string]bool), make(map[string]string)
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath, Export string
			GoFiles            []string
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if folder, ours := strings.CutPrefix(p.ImportPath, modulePath); ours {
			for _, name := range p.GoFiles {
				built[path.Join(strings.TrimPrefix(folder, "/"), name)] = true
			}
		}
	}
	return built, importer.ForCompiler(token.NewFileSet(), "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
}

// checkCircles finds packages of which too many files use each other.
func checkCircles(sources []source, imported types.Importer) []finding {
	packages := make(map[string][]source)
	for _, s := range sources {
		packages[s.pkg()] = append(packages[s.pkg()], s)
	}
	var findings []finding
	for name, files := range packages {
		uses, err := usesOf(name, files, imported)
		if err != nil {
			findings = append(findings, finding{path: name, text: err.Error()})
			continue
		}
		for _, circle := range circles(uses) {
			if len(circle) > maxCircle {
				findings = append(findings, finding{path: name, text: fmt.Sprintf(
					"%d files use each other, %d may: move what several use below them: %s",
					len(circle), maxCircle, strings.Join(circle, " "))})
			}
		}
	}
	return findings
}

// usesOf returns, for each file of a package, the files whose functions, methods, types, variables
// and constants it names. Fields do not count: code that uses a field uses its type.
func usesOf(
	name string, sources []source, imported types.Importer,
) (map[string]map[string]bool, error) {
	fset := token.NewFileSet()
	var files []*ast.File
	for _, s := range sources {
		file, err := parser.ParseFile(fset, path.Base(s.path), s.text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	info := types.Info{Uses: make(map[*ast.Ident]types.Object)}
	config := types.Config{Importer: imported}
	pkg, err := config.Check(name, fset, files, &info)
	if err != nil {
		return nil, err
	}
	uses := make(map[string]map[string]bool)
	for _, file := range files {
		uses[fset.Position(file.Pos()).Filename] = make(map[string]bool)
	}
	for id, object := range info.Uses {
		_, function := object.(*types.Func)
		if object.Pkg() == pkg && (function || object.Parent() == pkg.Scope()) {
			from := fset.Position(id.Pos()).Filename
			uses[from][fset.Position(object.Pos()).Filename] = true
		}
	}
	return uses, nil
}

// circles returns the groups of files that use each other, directly or through others of the group.
func circles(uses map[string]map[string]bool) [][]string {
	reached := make(map[string]map[string]bool)
	var walk func(from, file string)
	walk = func(from, file string) {
		if !reached[from][file] {
			reached[from][file] = true
			for next := range uses[file] {
				walk(from, next)
			}
		}
	}
	for file := range uses {
		reached[file] = make(map[string]bool)
		walk(file, file)
	}
	var list [][]string
	for _, file := range slices.Sorted(maps.Keys(uses)) {
		var circle []string
		for _, other := range slices.Sorted(maps.Keys(reached[file])) {
			if reached[other][file] {
				circle = append(circle, other)
			}
		}
		if circle[0] == file {
			list = append(list, circle)
		}
	}
	return list
}

func TestCircles_Reports(t *testing.T) {
	// Each file calls the next one. The last one calls a method of the first, or uses its type.
	ring := func(pkg string, files int, closes string) []source {
		var sources []source
		for i := range files {
			text := fmt.Sprintf("package p\n\ntype t%d int\n\nfunc (t%d) f%d() { t%d(0).f%d() }\n",
				i, i, i, i+1, i+1)
			if i == files-1 {
				text = fmt.Sprintf("package p\n\ntype t%d int\n\nfunc (t%d) f%d() { %s }\n",
					i, i, i, closes)
			}
			sources = append(sources, fromText(t, fmt.Sprintf("%s/f%d.go", pkg, i), text))
		}
		return sources
	}
	expect(t, checkCircles(slices.Concat(
		ring("method", 9, "t0(0).f0()"), ring("type", 10, "var x t0; _ = x"),
		ring("small", 8, "t0(0).f0()"), ring("line", 12, ""), ring("broken", 2, "return 1"),
	), nil),
		"method: 9 files use each other, 8 may: move what several use below them: f0.go f1.go",
		"type: 10 files use each other",
		"broken: f1.go:5",
	)
}
