package arch_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

const (
	maxColumns   = 100 // of a line, a tab being as wide as tabWidth
	maxFileLines = 600 // of a file that is no test
	maxFuncLines = 80  // of a function that is no test
	tabWidth     = 4
)

func TestShape(t *testing.T) {
	report(t, checkShape(tree(t)))
}

// checkShape looks at how declarations, names, comments and errors are written.
func checkShape(sources []source) []finding {
	var findings []finding
	for _, s := range sources {
		findings = append(findings, checkColumns(s)...)
		if s.isTest() {
			continue
		}
		findings = append(findings, checkLengths(s)...)
		findings = append(findings, checkDocs(s)...)
		findings = append(findings, checkNames(s)...)
		findings = append(findings, checkBools(s)...)
		findings = append(findings, checkErrors(s)...)
	}
	findings = append(findings, checkReceivers(sources)...)
	return append(findings, checkPackages(sources)...)
}

// checkColumns finds lines that are too long, except lines with an address, which cannot be broken.
func checkColumns(s source) []finding {
	var findings []finding
	n := 0
	for line := range strings.SplitSeq(s.text, "\n") {
		n++
		columns := utf8.RuneCountInString(line) + (tabWidth-1)*strings.Count(line, "\t")
		if columns > maxColumns && !strings.Contains(line, "://") {
			findings = append(findings, finding{s.path, n,
				fmt.Sprintf("%d columns: break the line at %d", columns, maxColumns)})
		}
	}
	return findings
}

func checkLengths(s source) []finding {
	var findings []finding
	if n := strings.Count(s.text, "\n"); n > maxFileLines {
		findings = append(findings, finding{s.path, maxFileLines,
			fmt.Sprintf("%d lines: the file has more than one subject, split it", n)})
	}
	for _, decl := range s.file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		if n := s.line(f.End()) - s.line(f.Pos()) + 1; n > maxFuncLines {
			findings = append(findings, s.finding(f.Pos(),
				"%s has %d lines: split it, %d is a screenful", f.Name.Name, n, maxFuncLines))
		}
	}
	return findings
}

// checkDocs finds exported declarations without a comment that begins with their name.
func checkDocs(s source) []finding {
	var findings []finding
	need := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		if !name.IsExported() {
			return
		}
		for _, doc := range docs {
			if beginsWith(doc.Text(), name.Name) {
				return
			}
		}
		findings = append(findings, s.finding(name.Pos(),
			"%s is exported: give it a comment that begins with its name", name.Name))
	}
	for _, decl := range s.file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			if decl.Recv == nil || ast.IsExported(receiverType(decl)) {
				need(decl.Name, decl.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					need(spec.Name, spec.Doc, single(decl))
				case *ast.ValueSpec:
					// A comment at the end of the line is as good: the name is in front of it.
					if spec.Comment.Text() == "" {
						need(spec.Names[0], spec.Doc, single(decl))
					}
				}
			}
		}
	}
	return findings
}

// single returns the comment of a declaration that has no parentheses.
func single(decl *ast.GenDecl) *ast.CommentGroup {
	if decl.Lparen.IsValid() {
		return nil
	}
	return decl.Doc
}

func beginsWith(doc, name string) bool {
	for _, article := range []string{"A ", "An ", "The "} {
		doc = strings.TrimPrefix(doc, article)
	}
	rest, ok := strings.CutPrefix(doc, name)
	if !ok {
		return false
	}
	next, _ := utf8.DecodeRuneInString(rest)
	return !unicode.IsLetter(next) && !unicode.IsDigit(next) && next != '_'
}

// receiverType returns the name of a method's type, without star and parameters.
func receiverType(f *ast.FuncDecl) string {
	expr := f.Recv.List[0].Type
	for {
		switch x := expr.(type) {
		case *ast.StarExpr:
			expr = x.X
		case *ast.ParenExpr:
			expr = x.X
		case *ast.IndexExpr:
			expr = x.X
		case *ast.IndexListExpr:
			expr = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

var getter = regexp.MustCompile(`^[Gg]et[A-Z]`)

// checkNames finds getters called Get, in declarations of functions, methods and types, and in
// the methods of interfaces and the fields of structs.
func checkNames(s source) []finding {
	var findings []finding
	look := func(name *ast.Ident) {
		if getter.MatchString(name.Name) {
			findings = append(findings, s.finding(name.Pos(),
				"%s: call it %s", name.Name, name.Name[len("Get"):]))
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			look(n.Name)
		case *ast.TypeSpec:
			look(n.Name)
		case *ast.ValueSpec:
			for _, name := range n.Names {
				look(name)
			}
		case *ast.Field:
			for _, name := range n.Names {
				look(name)
			}
		}
		return true
	})
	return findings
}

// checkBools finds parameters of type bool in what is exported: true says nothing at a call.
func checkBools(s source) []finding {
	var findings []finding
	for _, decl := range s.file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || !f.Name.IsExported() || f.Recv != nil && !ast.IsExported(receiverType(f)) {
			continue
		}
		for _, param := range f.Type.Params.List {
			expr := param.Type
			if rest, ok := expr.(*ast.Ellipsis); ok {
				expr = rest.Elt
			}
			if id, ok := expr.(*ast.Ident); ok && id.Name == "bool" {
				findings = append(findings, s.finding(param.Pos(),
					"%s has a parameter of type bool: make it two functions, or a named type",
					f.Name.Name))
			}
		}
	}
	return findings
}

// checkErrors looks at the texts given to errors.New and fmt.Errorf.
func checkErrors(s source) []finding {
	var findings []finding
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok || !(x.Name == "errors" && sel.Sel.Name == "New" ||
			x.Name == "fmt" && sel.Sel.Name == "Errorf") {
			return true
		}
		text := textOf(call.Args[0])
		if wrong := errorText(text); wrong != "" {
			findings = append(findings, s.finding(call.Pos(), "error %q %s", text, wrong))
		}
		return true
	})
	return findings
}

// textOf returns the text of an expression that joins literals. What it joins beside them is left
// out as by a verb of fmt.
func textOf(expr ast.Expr) string {
	switch expr := expr.(type) {
	case *ast.BasicLit:
		text, _ := strconv.Unquote(expr.Value)
		return text
	case *ast.BinaryExpr:
		return textOf(expr.X) + textOf(expr.Y)
	}
	return "%s"
}

// errorText says what is wrong with the text of an error, or nothing.
func errorText(text string) string {
	first := strings.FieldsFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_'
	})
	switch {
	case strings.Contains(strings.ToLower(text), "failed to"):
		return `says "failed to": begin with the verb that failed`
	case strings.HasSuffix(text, ".") && !strings.HasSuffix(text, "…"),
		strings.HasSuffix(text, "!"), strings.HasSuffix(text, "\n"), strings.HasSuffix(text, " "):
		return "has an end of its own: more may follow it"
	case len(first) == 0 || !strings.HasPrefix(text, first[0]):
		return "" // begins with a verb of fmt or a quote
	case isName(first[0], text[len(first[0]):]):
		return ""
	case unicode.IsUpper([]rune(first[0])[0]):
		return "begins with a capital"
	}
	return ""
}

// isName is true for a word that keeps its capital: a word with several capitals, such as TTL and
// LockDelay, or a field, as in "Name: too long" or "Node.Name".
func isName(word, rest string) bool {
	more := strings.ContainsFunc(word[1:], func(r rune) bool {
		return unicode.IsUpper(r) || unicode.IsDigit(r)
	})
	return more || strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, ".")
}

// checkReceivers finds types whose methods call their receiver by different names.
func checkReceivers(sources []source) []finding {
	var findings []finding
	names := make(map[string]string)
	for _, s := range sources {
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv == nil || len(f.Recv.List[0].Names) == 0 {
				continue
			}
			name, typ := f.Recv.List[0].Names[0].Name, receiverType(f)
			at := s.pkg() + " " + s.file.Name.Name + "." + typ
			switch {
			case name == "_":
			case names[at] == "":
				names[at] = name
			case names[at] != name:
				findings = append(findings, s.finding(f.Pos(),
					"receiver %s of %s.%s is called %s elsewhere: call it the same",
					name, typ, f.Name.Name, names[at]))
			}
		}
	}
	return findings
}

// hollow are names of packages that say nothing about what is in them.
var hollow = []string{"base", "common", "helper", "helpers", "lib", "misc", "util", "utils"}

// checkPackages finds packages without a comment, and those with a name that says nothing.
func checkPackages(sources []source) []finding {
	var findings []finding
	first := make(map[string]source)
	documented := make(map[string]bool)
	for _, s := range sources {
		pkg := s.pkg()
		if s.isTest() {
			continue
		}
		if _, ok := first[pkg]; !ok {
			first[pkg] = s
		}
		doc, name := s.file.Doc.Text(), s.file.Name.Name
		if name == "main" && doc != "" || beginsWith(doc, "Package "+name) {
			documented[pkg] = true
		}
	}
	for pkg, s := range first {
		if !documented[pkg] {
			findings = append(findings, s.finding(s.file.Package,
				"package %s has no comment: write one that begins with Package %[1]s",
				s.file.Name.Name))
		}
		if slices.Contains(hollow, s.file.Name.Name) {
			findings = append(findings, s.finding(s.file.Package,
				"package %s: name it for what it gives", s.file.Name.Name))
		}
	}
	return findings
}

func TestShape_Reports(t *testing.T) {
	expect(t, checkShape([]source{
		fromText(t, "a/a.go", `// Package a is here.
package a

type Bare struct{}

// The Documented is fine.
type Documented struct{ getName string }

// Documentedness is another name.
func (d *Documented) Open(force bool) {}

// Close is fine; its result is no parameter.
func (x *Documented) Close() bool { return false }

// GetSize is named for its getting.
func GetSize(flags ...bool) int { return 0 }

// Get is fine, and yield too.
func Get(yield func(bool)) {}

func (h hidden) Exported(ok bool) {}

const (
	One = 1 // is commented at its end
	Two = 2
)

// ErrThree is fine.
var ErrThree = errors.New("three")
`),
		fromText(t, "a/a_test.go", "package a_test\n\nfunc (q *Documented) Undocumented() {}\n"),
		fromText(t, "b/b.go", "package b\n\n// "+strings.Repeat("é", 97)+"\n\t// "+
			strings.Repeat("é", 95)+"\n// https://"+strings.Repeat("x", 100)+"\n"),
		fromText(t, "util/long.go", "// Package util is long.\npackage util\n\nfunc f() {\n"+
			strings.Repeat("\tf()\n", 79)+"}\n"+strings.Repeat("\n", 600)),
		fromText(t, "util/long_test.go", "package util\n"+strings.Repeat("\n", 700)),
	}),
		"a/a.go:4: Bare is exported",
		"a/a.go:7: getName: call it Name",
		"a/a.go:10: Open is exported",
		"a/a.go:10: Open has a parameter of type bool",
		"a/a.go:13: receiver x of Documented.Close is called d",
		"a/a.go:16: GetSize: call it Size",
		"a/a.go:16: GetSize has a parameter of type bool",
		"a/a.go:25: Two is exported",
		"b/b.go:1: package b has no comment",
		"b/b.go:4: 102 columns",
		"util/long.go:2: package util: name it",
		"util/long.go:4: f has 81 lines",
		"util/long.go:600: 684 lines",
	)
}

func TestShape_ErrorTexts(t *testing.T) {
	for text, wrong := range map[string]bool{
		"encode session: %w":      false,
		"TTL is negative":         false,
		"LockDelay over 60 s":     false,
		"Name: too long":          false,
		"%s: no such key":         false,
		"\"Quoted\" is no key":    false,
		"":                        false,
		"No such key":             true,
		"A key is missing":        true,
		"open: failed to read":    true,
		"Failed to open":          true,
		"closed.":                 true,
		"closed\n":                true,
		"the session has ended: ": true,
	} {
		half := len(text) / 2
		s := fromText(t, "e.go", "package e\nvar a, b = errors.New("+strconv.Quote(text)+
			"), fmt.Errorf("+strconv.Quote(text[:half])+"+"+strconv.Quote(text[half:])+", 1)")
		if got := len(checkErrors(s)); got != 0 != wrong || wrong && got != 2 {
			t.Errorf("%q: %d findings, wrong is %v", text, got, wrong)
		}
	}
}

// Ensure that the position of a finding is the place that it is about.
func TestShape_Position(t *testing.T) {
	s := fromText(t, "p.go", "package p\n\nvar x = 1\n")
	if got := s.finding(s.file.Decls[0].(*ast.GenDecl).Pos(), "it is %d", 1).String(); got !=
		"p.go:3: it is 1" {
		t.Error(got)
	}
	if got := s.line(token.Pos(1)); got != 1 {
		t.Errorf("line %d", got)
	}
}
