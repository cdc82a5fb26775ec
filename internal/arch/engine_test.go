package arch_test

import (
	"go/ast"
	"go/token"
	"slices"
	"testing"
)

// pureImports lists the packages of the standard library that the state machine may import: nothing
// that waits, does I/O, depends on the machine or is random.
var pureImports = []string{
	"bytes", "cmp", "encoding/json", "errors", "fmt", "iter", "maps", "slices", "strings", "time",
}

// pureNames lists what it may use of the packages that have more than data.
var pureNames = map[string][]string{
	"fmt":                           {"Errorf", "Sprintf"},
	"iter":                          {"Seq", "Seq2"}, // Pull runs a goroutine
	modulePath + "/internal/expiry": {"End", "Grant", "Heap", "Item", "Notice", "Renewal"},
	modulePath + "/internal/hub":    {"Event"},
}

// Ensure that package engine decides by its arguments alone. The source does not show whether the
// order of a map decides anything: a test of the package runs it twice.
func TestEngine_IsAStateMachine(t *testing.T) {
	report(t, checkPure(module(t), "internal/engine"))
}

// checkPure finds what the ordinary code of a state machine may not have: concurrency, I/O, time.
func checkPure(sources []source, pkg string) []finding {
	var findings []finding
	for _, s := range sources {
		if s.pkg() != pkg || s.isTest() {
			continue
		}
		for _, spec := range s.file.Imports {
			to := importPath(spec)
			if _, outside := planName(to); !outside && !slices.Contains(pureImports, to) {
				findings = append(findings, s.finding(spec.Pos(),
					"imports %s, which no state machine needs: leave that to its caller", to))
			}
		}
		for _, use := range timeUses(s) {
			findings = append(findings, s.finding(use.pos,
				"uses %s: take now as a parameter", use.what))
		}
		findings = append(findings, impureNames(s)...)
		findings = append(findings, concurrency(s)...)
	}
	return findings
}

// impureNames finds uses of names that pureNames does not list.
func impureNames(s source) []finding {
	allowed := make(map[string][]string) // by the name of the package in the file
	for imported, names := range pureNames {
		if name := s.nameOf(imported); name != "" {
			allowed[name] = names
		}
	}
	var findings []finding
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok {
			return true
		}
		if names, ok := allowed[x.Name]; ok && !slices.Contains(names, sel.Sel.Name) {
			findings = append(findings, s.finding(sel.Pos(),
				"uses %s.%s, which pureNames does not have: leave that to the caller", x.Name,
				sel.Sel.Name))
		}
		return true
	})
	return findings
}

// concurrency finds goroutines and channels.
func concurrency(s source) []finding {
	var findings []finding
	ast.Inspect(s.file, func(n ast.Node) bool {
		what := ""
		switch n := n.(type) {
		case *ast.GoStmt:
			what = "a go statement"
		case *ast.SelectStmt:
			what = "a select statement"
		case *ast.ChanType:
			what = "a channel"
		case *ast.SendStmt:
			what = "a send to a channel"
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				what = "a receive from a channel"
			}
		}
		if what != "" {
			findings = append(findings, s.finding(n.Pos(),
				"has %s: a state machine has no concurrency", what))
		}
		return true
	})
	return findings
}

func TestEngine_Reports(t *testing.T) {
	expect(t, checkPure([]source{
		fromText(t, "internal/engine/lock.go", `package engine
			import (
				"fmt"
				"iter"
				"slices"
				"sync"
				"time"
				"github.com/lockd/lockd/internal/expiry"
			)
			type e struct { mu sync.Mutex; told chan struct{} }
			func f(e *e) {
				go f(e)
				select {}
			}
			func g(c *e) {
				c.told <- struct{}{}
				<-c.told
				fmt.Println(slices.Max([]int{1}), fmt.Sprintf(""))
			}
			var now, then = time.Now(), time.Unix(0, 0)
			var heap, alarm = expiry.Heap{}, expiry.NewAlarm(nil, nil)
			func h(c clock.Clock, seq iter.Seq[int]) { c.Now(); iter.Pull(seq) }`),
		fromText(t, "internal/engine/lock_test.go", `package engine_test
			import "sync"
			func f() { go f() }`),
		fromText(t, "internal/writer/writer.go", `package writer
			import "sync"
			func f() { go f() }`),
	}, "internal/engine"),
		"lock.go:6: imports sync",
		"lock.go:10: has a channel",
		"lock.go:12: has a go statement",
		"lock.go:13: has a select statement",
		"lock.go:16: has a send to a channel",
		"lock.go:17: has a receive from a channel",
		"lock.go:18: uses fmt.Println",
		"lock.go:20: uses time.Now",
		"lock.go:21: uses expiry.NewAlarm",
		"lock.go:22: uses Clock.Now",
		"lock.go:22: uses iter.Pull",
	)
}
