package arch_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"testing"
)

// realTime has the functions that read the system's clock or wait by it. Code that uses one
// ignores Options.Clock.
var realTime = map[string][]string{
	"time": {
		"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until",
	},
	"context": {"WithDeadline", "WithDeadlineCause", "WithTimeout", "WithTimeoutCause"},
}

// allowance lets the files of a folder, or one file, use some function, and says why.
type allowance struct {
	where string // a file, or a folder without its subfolders
	what  string
	times int // the most uses; 0 is no limit
	why   string
}

// clockPlan lists every place that may use time. All other code is passed the current time.
var clockPlan = []allowance{
	{"internal/writer/writer.go", "Clock.Now", 1, "the one reading of Options.Clock"},
	{"internal/writer/commit.go", "time.Now", 1, "when a yield began: nothing is decided by it"},
	{"internal/writer/commit.go", "time.Since", 1, "how long it took"},
	{"cmd/lockd/lock.go", "context.WithTimeoutCause", 1, "--timeout"},
	{"cmd/lockd/lock.go", "context.WithTimeout", 1, "how long a release is tried"},
	{"cmd/lockd/lock_signal.go", "time.AfterFunc", 1, "signals of the system are in real time"},
	{"cmd/lockd/lock_run.go", "time.Now", 3, "processes know no clock but the real one"},
	{"cmd/lockd/lock_run.go", "time.Until", 1, "the same"},
	{"cmd/lockd/lock_run.go", "time.NewTimer", 1, "the same"},
	{"cmd/lockd/lock_run.go", "time.Sleep", 1, "between two looks at processes of others"},
	{"cmd/lockd/serve_guard.go", "time.Now", 1, "the end of a connection that is turned away"},
	{"cmd/lockd/serve_http.go", "time.Now", 2, "deadlines of connections"},
	{"cmd/lockd/serve_http.go", "time.Since", 1, "how long a client makes the server wait"},
	{"cmd/lockd/serve_http.go", "context.WithTimeout", 1, "the end of a server"},
	{"cmd/lockd/serve.go", "time.Now", 1, "when a server began: told at its end"},
	{"cmd/lockd/serve_log.go", "time.Since", 1, "the same"},
	{"cmd/lockd/serve_log.go", "context.WithTimeout", 1, "a reader of the log that hangs"},
	{"cmd/lockd/serve_listen_unix.go", "time.Now", 1, "when the wait for a folder's lock began"},
	{"cmd/lockd/serve_listen_unix.go", "time.Since", 1, "how long it lasts"},
	{"cmd/lockd/serve_listen_unix.go", "time.Sleep", 1, "between two looks at that lock"},
	{"cmd/lockd/serve_refusals.go", "time.Now", 1, "when a refusal was logged"},
	{"cmd/lockd/watch.go", "time.NewTimer", 1, "the pause while a server is away"},
	{"cmd/lockd/internal/lockclient", "time.Now", 0, "a server has its own clock"},
	{"cmd/lockd/internal/lockclient", "time.Since", 1, "the same"},
	{"cmd/lockd/internal/lockclient", "time.Until", 1, "the same"},
	{"cmd/lockd/internal/lockclient", "time.NewTimer", 1, "the same"},
	{"cmd/lockd/internal/lockclient", "time.AfterFunc", 1, "the same"},
	{"cmd/lockd/internal/lockclient", "context.WithDeadline", 2, "the same"},
	{"consulapi/agent.go", "time.Now", 1, "when the host was looked at: told, and nothing else"},
	{"consulapi/agent_metrics.go", "time.Now", 1, "when it was counted: told, and nothing else"},
	{"examples/leader", "time.Now", 0, "a story in real time: how long things took"},
	{"examples/leader", "time.Since", 0, "the same"},
	{"examples/leader", "time.Sleep", 1, "between two looks at a queue, which nothing tells of"},
	{"examples/stuck", "context.WithTimeout", 1, "the story has to end"},
	{"examples/stuck", "time.Sleep", 1, "between two looks at a queue, which nothing tells of"},
	{"examples/leader", "context.WithTimeout", 1, "the story has to end"},
	{"lockdtest/lockdtest.go", "Clock.Now", 2, "where the mock stands, to move it on from there"},
	{"lockdtest/run.go", "Clock.Now", 1, "where the mock of Explore begins"},
	{"lockdtest/run.go", "time.NewTimer", 1, "in a bubble: timers run with the mock"},
	{"lockdtest/run.go", "time.Now", 2, "the same"},
	{"lockdtest/run.go", "time.Since", 1, "the same"},
	{"lockdtest/explore.go", "time.NewTicker", 1, "for a goroutine that does not stop"},
	{"lockdtest/wait.go", "time.NewTimer", 1, "the patience of a test that waits in vain"},
	{"lockdui/options.go", "time.Now", 1, "the default of Options.Now, which the pages go by"},
	{"lockdui/options.go", "Clock.Now", 2, "Options.Now, which is no clock"},
	{"lockdui/router.go", "Clock.Now", 1, "the same"},
	{"lockdui/stream.go", "time.NewTicker", 1, "a viewer has no clock but the real one"},
	{"lockdui/stream.go", "time.NewTimer", 1, "the pause after a page"},
	{"lockdui/stream.go", "time.Now", 1, "how long the making of a page takes: it rests longer"},
	{"lockdui/stream.go", "time.Since", 1, "the same"},
	{"store/internal/file/open.go", "time.Now", 1, "when the wait for the file's lock began"},
	{"store/internal/file/open.go", "time.Sleep", 1, "between two tries to open a file of others"},
	{"store/internal/file/open.go", "time.Since", 2, "how long it lasts"},
	{"internal/expiry", "Clock.AfterFunc", 1, "the one timer; it only wakes"},
	{"internal/expiry", "Clock.Now", 2, "before a timer is set, and after it"},
}

// clockMethods are the methods of a clock that are found by name, on any receiver, called or not.
// clockCalls are found where they are called: fields and types have such names too. After could not
// be told from the method of time.Time.
var (
	clockMethods = []string{"AfterFunc", "Now", "Sleep", "Tick", "WithDeadline", "WithTimeout"}
	clockCalls   = []string{"Since", "Ticker", "Timer", "Until"}
)

func TestClock(t *testing.T) {
	report(t, checkClock(module(t), clockPlan))
}

// checkClock finds every use of time in ordinary code that the plan does not have, and every row
// of the plan that nothing needs.
func checkClock(sources []source, plan []allowance) []finding {
	var findings []finding
	uses := make([]int, len(plan))
	for _, s := range sources {
		if s.isTest() {
			continue
		}
		for _, use := range timeUses(s) {
			i := slices.IndexFunc(plan, func(a allowance) bool {
				return a.what == use.what && (a.where == s.path || a.where == path.Dir(s.path))
			})
			if i < 0 {
				findings = append(findings, s.finding(use.pos,
					"uses %s, which clockPlan does not allow here: take now as a parameter, "+
						"or give the plan a row with a reason", use.what))
				continue
			}
			if uses[i]++; plan[i].times > 0 && uses[i] > plan[i].times {
				findings = append(findings, s.finding(use.pos,
					"uses %s once more than the %d that clockPlan allows: call what is there",
					use.what, plan[i].times))
			}
		}
	}
	for i, a := range plan {
		if uses[i] == 0 || a.why == "" {
			findings = append(findings, finding{path: "internal/arch/clock_test.go",
				text: fmt.Sprintf("clockPlan lets %s use %s, which it does not, or gives no "+
					"reason: mend the row", a.where, a.what)})
		}
	}
	return findings
}

type timeUse struct {
	what string
	pos  token.Pos
}

// timeUses finds the functions of realTime, called or not, and the methods of a clock.
func timeUses(s source) []timeUse {
	packages := map[string]string{"context": "context"}
	for imported := range realTime {
		if name := s.nameOf(imported); name != "" {
			packages[name] = imported
		}
	}
	var uses []timeUse
	look := func(expr ast.Expr, methods []string, ofPackages map[string][]string) {
		sel, ok := expr.(*ast.SelectorExpr)
		if !ok {
			return
		}
		from := "Clock"
		if x, ok := sel.X.(*ast.Ident); ok && packages[x.Name] != "" {
			from = packages[x.Name]
			methods = ofPackages[from]
		}
		if slices.Contains(methods, sel.Sel.Name) {
			uses = append(uses, timeUse{from + "." + sel.Sel.Name, sel.Pos()})
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			look(n, clockMethods, realTime)
		case *ast.CallExpr:
			look(n.Fun, clockCalls, nil)
		}
		return true
	})
	return uses
}

func TestClock_Reports(t *testing.T) {
	plan := []allowance{
		{"lockd.go", "Clock.Now", 1, "the reading"},
		{"examples/leader", "time.Sleep", 0, "a story takes time"},
		{"txn.go", "time.Now", 0, "no longer"},
	}
	expect(t, checkClock([]source{
		fromText(t, "lockd.go", `package lockd
			func (db *DB) now() time.Time { return db.opts.clock().Now() }
			func (db *DB) again() time.Time { return db.clock.Now() }`),
		fromText(t, "lock.go", `package lockd
			import std "time"
			var now = std.Now
			func f(d std.Duration) { std.Sleep(d); var t std.Time; t.After(t) }`),
		fromText(t, "session.go", `package lockd
			import "context"
			func f(c clock.Clock) { context.WithTimeout(nil, 0); c.AfterFunc(0, nil) }
			func g(ctx context.Context) { context.AfterFunc(ctx, nil) }
			var f = c.Now
			func h(c *clock.Timer) { c.Sleep(c.Until(c.Since(x.Until))) }`),
		fromText(t, "lockd_test.go", `package lockd_test
			import "time"
			func f() { time.Sleep(1) }`),
		fromText(t, "examples/leader/main.go", `package main
			import "time"
			func f() { time.Sleep(1); time.Sleep(2) }`),
	}, plan),
		"lockd.go:3: uses Clock.Now once more than the 1",
		"lock.go:3: uses time.Now",
		"lock.go:4: uses time.Sleep",
		"session.go:3: uses context.WithTimeout",
		"session.go:3: uses Clock.AfterFunc",
		"session.go:5: uses Clock.Now",
		"session.go:6: uses Clock.Sleep",
		"session.go:6: uses Clock.Until",
		"session.go:6: uses Clock.Since",
		"clockPlan lets txn.go use time.Now, which it does not",
	)
}
