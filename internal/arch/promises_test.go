package arch_test

import (
	"go/ast"
	"regexp"
	"strings"
	"testing"
)

var (
	// namedFunction is how a document names the function of a change.
	namedFunction = regexp.MustCompile("`([\\w/]+\\.go)`, `((?:[A-Z]\\w*\\.)?\\w+)`")

	// namedTest is how it names a test, of whatever file.
	namedTest = regexp.MustCompile("()`((?:Test|Fuzz)\\w+)`")
)

// Ensure that the changes that the documents say were tried can be made, and the tests that they
// name be run: each function is in its file.
func TestPromises_NameFunctions(t *testing.T) {
	for _, name := range []string{"doc/promises.md", "doc/trust.md"} {
		report(t, checkNamedFunctions(name, document(t, name), module(t)))
	}
}

// checkNamedFunctions finds the functions and the tests that a document names and that are not
// there.
func checkNamedFunctions(name, text string, sources []source) []finding {
	functions := make(map[[2]string]bool) // by file and name
	for _, s := range sources {
		for _, decl := range s.file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			functions[[2]string{s.path, fn.Name.Name}] = true
			if fn.Recv != nil {
				functions[[2]string{s.path, receiverType(fn) + "." + fn.Name.Name}] = true
			} else if s.isTest() {
				functions[[2]string{"", fn.Name.Name}] = true
			}
		}
	}
	var findings []finding
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		named := namedFunction.FindAllStringSubmatch(line, -1)
		for _, m := range append(named, namedTest.FindAllStringSubmatch(line, -1)...) {
			if !functions[[2]string{m[1], m[2]}] {
				what := "the test " + m[2]
				if m[1] != "" {
					what = m[2] + " of " + m[1]
				}
				findings = append(findings, finding{name, n, "names " + what +
					", which is not there: name the function that does it now"})
			}
		}
	}
	return findings
}

func TestPromises_NameFunctions_Reports(t *testing.T) {
	sources := []source{
		fromText(t, "a/b.go", "package b\nfunc F() {}\nfunc (g *G) M() {}\nfunc Testify() {}\n"),
		fromText(t, "a/b_test.go", "package b\nfunc TestF() {}\n"),
	}
	const text = "- `a/b.go`, `F`: one\n- `a/b.go`, `G.M`: `M` two\n- `a/b.go`, `Gone`: three\n" +
		"- `a/c.go`, `F`: four → `TestF`, `TestGone`\n- `a/b.go`, `H.M`: five → `Testify`\n"
	expect(t, checkNamedFunctions("doc/x.md", text, sources),
		"doc/x.md:3: names Gone of a/b.go, which is not there",
		"doc/x.md:4: names F of a/c.go",
		"doc/x.md:4: names the test TestGone, which is not there",
		"doc/x.md:5: names H.M of a/b.go",
		"doc/x.md:5: names the test Testify",
	)
}
