package arch_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	semanticsDoc = "doc/semantics.md"
	consulDoc    = "doc/consul-api.md"
	promisesDoc  = "doc/promises.md"
)

var (
	// number is a rule's number in prose.
	number = regexp.MustCompile(`\b[BGHIKMNRSTX][1-9][0-9]?\b`)

	// numbersInName are the numbers of one part of a test's name: K14, or K14K15.
	numbersInName = regexp.MustCompile(`^(?:[BGHIKMNRSTX][1-9][0-9]?)+$`)

	oneNumber = regexp.MustCompile(`[A-Z][0-9]+`)

	// ruleStatement begins a rule in semantics.md: an item of a list or a row of a table. Its
	// number is a link if there is a stanza for it.
	ruleStatement = regexp.MustCompile(
		`(?m)^(?:- |\| )\*\*\[?([BHIKMNRSTX][1-9][0-9]?)(?:\]\[([a-z]+)\])?\*\*`)

	// promiseStatement begins a promise: an item, a row, a heading or a line.
	promiseStatement = regexp.MustCompile(`(?m)^[-#|*\s]*(G[1-9][0-9]?)\b`)
)

// untested are the rules that no test bears, with the reason.
var untested = map[string]string{}

// use is a place that cites a number.
type use struct {
	number string
	source source
	pos    token.Pos
}

func TestRuleNumbers(t *testing.T) {
	sources := tree(t)
	uses := numbersUsed(sources)
	if len(uses) == 0 {
		t.Fatal("no rule's number found in the whole module: is this test looking at it?")
	}
	rules := statements(ruleStatement, document(t, semanticsDoc))
	if len(rules) == 0 {
		t.Fatalf("%s: no rule found; a rule begins with %q", semanticsDoc, "- **K1**")
	}
	maps.Copy(rules, statements(ruleStatement, document(t, consulDoc)))
	promises := statements(promiseStatement, promisesInDoc(sources))
	proofs := statements(promiseStatement, document(t, promisesDoc))
	report(t, checkNumbers(uses, rules, promises, proofs))
}

// Ensure that there is a test for each rule and each promise, bearing its number.
func TestRuleNumbers_EachHasATest(t *testing.T) {
	sources := module(t)
	stated := statements(ruleStatement, document(t, semanticsDoc))
	maps.Copy(stated, statements(ruleStatement, document(t, consulDoc)))
	maps.DeleteFunc(stated, func(n string, _ int) bool { return n[0] == 'X' }) // point to others
	maps.Copy(stated, statements(promiseStatement, promisesInDoc(sources)))
	report(t, checkTested(stated, numbersTested(sources), untested))
}

// statements returns the numbers that a document states, with the line of each.
func statements(pattern *regexp.Regexp, text string) map[string]int {
	lines := make(map[string]int)
	for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
		n := text[at[2]:at[3]]
		if lines[n] == 0 {
			lines[n] = strings.Count(text[:at[2]], "\n") + 1
		}
	}
	return lines
}

// promisesInDoc returns the comment of the root's doc.go.
func promisesInDoc(sources []source) string {
	for _, s := range sources {
		if s.path == "doc.go" {
			return s.file.Doc.Text()
		}
	}
	return ""
}

// numbersUsed finds the numbers in all comments and in the names of all tests.
func numbersUsed(sources []source) []use {
	var uses []use
	for _, s := range sources {
		for _, group := range s.file.Comments {
			for _, comment := range group.List {
				for _, at := range number.FindAllStringIndex(comment.Text, -1) {
					uses = append(uses,
						use{comment.Text[at[0]:at[1]], s, comment.Pos() + token.Pos(at[0])})
				}
			}
		}
	}
	return append(uses, numbersTested(sources)...)
}

// numbersTested finds the numbers that tests bear: in the names of their functions, and where the
// name given to Run begins with one.
func numbersTested(sources []source) []use {
	var uses []use
	for _, s := range sources {
		if !s.isTest() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if name, ok := testName(n); ok {
					for part := range strings.SplitSeq(name, "_") {
						if numbersInName.MatchString(part) {
							uses = append(uses, split(part, s, n.Pos())...)
						}
					}
				}
			case *ast.CallExpr:
				if name, ok := subtest(n); ok {
					first := strings.FieldsFunc(name, func(r rune) bool {
						return strings.ContainsRune(" _:,/", r)
					})
					if len(first) > 0 && numbersInName.MatchString(first[0]) {
						uses = append(uses, split(first[0], s, n.Pos())...)
					}
				}
			}
			return true
		})
	}
	return uses
}

func split(part string, s source, pos token.Pos) []use {
	var uses []use
	for _, n := range oneNumber.FindAllString(part, -1) {
		uses = append(uses, use{n, s, pos})
	}
	return uses
}

func testName(f *ast.FuncDecl) (string, bool) {
	for _, kind := range []string{"Test", "Fuzz", "Benchmark"} {
		if name, ok := strings.CutPrefix(f.Name.Name, kind); ok && f.Recv == nil {
			return name, true
		}
	}
	return "", false
}

func subtest(call *ast.CallExpr) (string, bool) {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != "Run" || len(call.Args) != 2 {
		return "", false
	}
	lit, ok := call.Args[0].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	name, err := strconv.Unquote(lit.Value)
	return name, err == nil
}

// checkNumbers finds the numbers that are used but not stated. Promises are stated in doc.go and in
// the list of their proofs, all others among the rules.
func checkNumbers(uses []use, rules, promises, proofs map[string]int) []finding {
	var findings []finding
	for _, u := range uses {
		switch {
		case u.number[0] != 'G' && rules[u.number] == 0:
			findings = append(findings, u.source.finding(u.pos,
				"cites %s, which neither %s nor %s states: mend the number, or state the rule",
				u.number, semanticsDoc, consulDoc))
		case u.number[0] == 'G' && promises[u.number] == 0:
			findings = append(findings, u.source.finding(u.pos,
				"cites %s, which doc.go does not state: mend the number, or state the promise",
				u.number))
		case u.number[0] == 'G' && proofs[u.number] == 0:
			findings = append(findings, u.source.finding(u.pos,
				"cites %s, for which %s names no test: name one", u.number, promisesDoc))
		}
	}
	return findings
}

// checkTested finds what is stated and not tested, and exemptions that are not needed.
func checkTested(stated map[string]int, tested []use, exempt map[string]string) []finding {
	var findings []finding
	has := func(n string) bool {
		return slices.ContainsFunc(tested, func(u use) bool { return u.number == n })
	}
	missing := make(map[string][]string) // by document
	for _, n := range slices.SortedFunc(maps.Keys(stated), compareNumbers) {
		where := semanticsDoc
		if n[0] == 'G' {
			where = "doc.go"
		}
		if _, ok := exempt[n]; !ok && !has(n) {
			missing[where] = append(missing[where], n)
		}
	}
	for where, numbers := range missing {
		findings = append(findings, finding{path: where,
			text: fmt.Sprintf("no test bears the number of %s: write Test%s_…",
				strings.Join(numbers, " "), numbers[0])})
	}
	for n := range exempt {
		if stated[n] == 0 || has(n) {
			findings = append(findings, finding{path: "internal/arch/rules_test.go",
				text: "untested has " + n + ", which is not stated, or tested: take it out"})
		}
	}
	return findings
}

// compareNumbers puts B2 before B10, and both before G1.
func compareNumbers(a, b string) int {
	return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

func TestRuleNumbers_Reports(t *testing.T) {
	const doc = "- **K14** A rule.\n| **S32** | a row | **K17** |\nand **K18** is none\n"
	rules := statements(ruleStatement, doc)
	promises := statements(promiseStatement, "Promises:\n\n  - G1: one.\n    See G2.\n")
	proofs := statements(promiseStatement, "| G1 | TestG1_One |\n## G2\n")
	sources := []source{
		fromText(t, "lock.go", `package lockd
			// Lock keeps K14–K16, G1 and G2.
			func Lock() {
				// S32, but X509 and AK47 are no rules.
			}`),
		fromText(t, "lock_test.go", `package lockd_test
			func TestK14_Free(t *testing.T) {}
			func TestX_B8S32(t *testing.T) {
				t.Run("H10: folded", nil)
				t.Run("a K99", nil)
			}
			func K98() {}`),
	}
	expect(t, checkNumbers(numbersUsed(sources), rules, promises, proofs),
		"lock.go:2: cites K16",
		"lock.go:2: cites G2, which doc.go does not state",
		"lock_test.go:3: cites B8",
		"lock_test.go:4: cites H10",
	)
	proofs["G1"] = 0
	expect(t, checkNumbers(numbersUsed(sources[:1]), rules, promises, proofs),
		"lock.go:2: cites K16",
		"lock.go:2: cites G2, which doc.go does not state",
		"lock.go:2: cites G1, for which doc/promises.md names no test",
	)
	rules["T4"], rules["K10"], rules["K9"], rules["G3"] = 7, 8, 8, 9
	expect(t, checkTested(rules, numbersTested(sources), map[string]string{"T4": "", "K14": ""}),
		"doc/semantics.md: no test bears the number of K9 K10: write TestK9_",
		"doc.go: no test bears the number of G3",
		"untested has K14",
	)
	if uses := numbersUsed([]source{fromText(t, "a.go", "package a")}); len(uses) != 0 {
		t.Errorf("numbers found where none are: %v", uses)
	}
}
