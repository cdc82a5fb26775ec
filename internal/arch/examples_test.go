package arch_test

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// Ensure that each exported type of the library has an Example with output, which go test runs.
func TestExamples(t *testing.T) {
	for _, pkg := range []string{".", "catalog"} {
		var library []source
		for _, s := range module(t) {
			if s.pkg() == pkg {
				library = append(library, s)
			}
		}
		report(t, checkExamples(library))
	}
}

// checkExamples finds the exported types of a package that have no Example, neither of the type
// itself nor of one of its methods or uses.
func checkExamples(sources []source) []finding {
	var findings []finding
	var examples []string
	for _, s := range sources {
		for _, decl := range s.file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || !s.isTest() || !hasOutput(s, fn) {
				continue
			}
			if name, ok := strings.CutPrefix(fn.Name.Name, "Example"); ok {
				examples = append(examples, name)
			}
		}
	}
	has := func(name string) bool {
		for _, example := range examples {
			if example == name || strings.HasPrefix(example, name+"_") {
				return true
			}
		}
		return false
	}
	for _, s := range sources {
		for _, decl := range s.file.Decls {
			types, ok := decl.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE || s.isTest() {
				continue
			}
			for _, spec := range types.Specs {
				name := spec.(*ast.TypeSpec).Name.Name
				if ast.IsExported(name) && !has(name) {
					findings = append(findings, s.finding(spec.Pos(),
						"%s has no example: write Example%s, with its output", name, name))
				}
			}
		}
	}
	return findings
}

// hasOutput reports whether go test compares what the example prints.
func hasOutput(s source, fn *ast.FuncDecl) bool {
	for _, group := range s.file.Comments {
		if fn.Pos() < group.Pos() && group.End() < fn.End() &&
			strings.HasPrefix(group.Text(), "Output:") {
			return true
		}
	}
	return false
}

func TestExamples_Reports(t *testing.T) {
	expect(t, checkExamples([]source{
		fromText(t, "a.go", "package a\n\ntype A struct{}\n\ntype B int\n\ntype C int\n\n"+
			"type private int\n\ntype Lock int\n"),
		fromText(t, "a_test.go", "package a_test\n\nfunc ExampleA() {\n\t// Output: a\n}\n\n"+
			"func ExampleB_method() {\n\t// Output: b\n}\n\nfunc ExampleC() {}\n\n"+
			"func ExampleLocker() {\n\t// Output: c\n}\n"),
	}), "C has no example", "Lock has no example")
}
