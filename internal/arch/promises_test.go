package arch_test

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

// namedFunction is how a document names the function of a change.
var namedFunction = regexp.MustCompile("`([\\w/]+\\.go)`, `(?:[A-Z]\\w*\\.)?(\\w+)`")

// Ensure that the changes that the documents say were tried can be made: each names a function that
// is in its file.
func TestPromises_NameFunctions(t *testing.T) {
	for _, name := range []string{"doc/promises.md", "doc/trust.md"} {
		report(t, checkNamedFunctions(name, document(t, name), module(t)))
	}
}

// checkNamedFunctions finds the functions that a document names and that are not in their files.
func checkNamedFunctions(name, text string, sources []source) []finding {
	functions := make(map[[2]string]bool) // by file and name
	for _, s := range sources {
		for _, decl := range s.file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok {
				functions[[2]string{s.path, fn.Name.Name}] = true
			}
		}
	}
	var findings []finding
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		for _, m := range namedFunction.FindAllStringSubmatch(line, -1) {
			if !functions[[2]string{m[1], m[2]}] {
				findings = append(findings, finding{name, n, "names " + m[2] + " in " + m[1] +
					", which is not there: name the function that does it now"})
			}
		}
	}
	return findings
}

func TestPromises_NameFunctions_Reports(t *testing.T) {
	sources := []source{fromText(t, "a/b.go", "package b\nfunc F() {}\nfunc (g *G) M() {}\n")}
	const text = "- `a/b.go`, `F`: one\n- `a/b.go`, `G.M`: two\n- `a/b.go`, `Gone`: three\n" +
		"- `a/c.go`, `F`: four\n"
	expect(t, checkNamedFunctions("doc/x.md", text, sources),
		"doc/x.md:3: names Gone in a/b.go",
		"doc/x.md:4: names F in a/c.go",
	)
}
