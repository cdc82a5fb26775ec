package lockdtest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

// childEnv names, in the environment of a child process, how the body of its schedules ends.
const childEnv = "LOCKDTEST_BODY"

// bodies are bodies that end the test, or Explore, in a way that Explore cannot catch.
var bodies = map[string]struct {
	body func(t *testing.T, w *lockdtest.World)
	want string
	once string // is printed by the body; Explore runs the schedule once more to show it
}{
	"test fails, another waits": {func(t *testing.T, w *lockdtest.World) {
		for _, name := range []string{"a", "b"} {
			w.Go(name, func() {
				s, err := w.DB().NewSession(nil)
				if err != nil {
					return
				}
				if _, err := s.Lock(context.Background(), "k", nil); err == nil {
					t.Fatal("printed by the body")
				}
			})
		}
	}, "lockdtest: test: the body has failed the test, and not by World.Errorf",
		"printed by the body"},
	"rule ends the test": {func(t *testing.T, w *lockdtest.World) {
		w.Invariant("rule", func() error { t.Fatal("printed by the body"); return nil })
		w.Go("a", func() { _ = put1(w.DB(), 1) })
	}, "the rule rule has ended Explore's own goroutine, as t.Fatal does", "printed by the body"},
	"condition ends the test": {func(t *testing.T, w *lockdtest.World) {
		w.Await(func() bool { t.Fatal("printed by the body"); return true })
	}, "a condition of World.Await has ended Explore's own goroutine", "printed by the body"},
	"rule writes": {func(t *testing.T, w *lockdtest.World) {
		w.Invariant("rule", func() error { return put1(w.DB(), 2) })
		w.Go("a", func() { _ = put1(w.DB(), 1) })
	}, "the rule rule: it writes to the database, or waits for a lock, and must not", ""},
}

// Ensure that a body that ends the test in its own way is told of, with the schedule or its seed,
// and that the bubble's panic is not all that is seen.
func TestExplore_BodyThatEndsTheTest(t *testing.T) {
	for name, test := range bodies {
		t.Run(name, func(t *testing.T) {
			const again = "Again: go test -run '^TestExplore_Child$' -lockdtest.seed="
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestExplore_Child$")
			child.Env = append(os.Environ(), childEnv+"="+name)
			out, err := child.CombinedOutput()
			if text := string(out); err == nil || !strings.Contains(text, test.want) ||
				!strings.Contains(text, again) ||
				test.once != "" && strings.Count(text, test.once) > 2 {
				t.Errorf("got %v, %s\nwant %q", err, text, test.want)
			}
		})
	}
}

// TestExplore_Child is what the child processes of TestExplore_BodyThatEndsTheTest run.
func TestExplore_Child(t *testing.T) {
	if test, child := bodies[os.Getenv(childEnv)]; child {
		lockdtest.Explore(t, &lockdtest.ExploreOptions{Schedules: 20},
			func(w *lockdtest.World) { test.body(t, w) })
	}
}

// Ensure that a point in the function of an Update fails with its name: no goroutine could go on.
func TestExplore_PointInUpdate(t *testing.T) {
	for want, point := range map[string]func(w *lockdtest.World){
		"World.Yield": (*lockdtest.World).Yield,
		"World.Sleep": func(w *lockdtest.World) { w.Sleep(time.Second) },
		"World.Await": func(w *lockdtest.World) { w.Await(func() bool { return true }) },
	} {
		found := lockdtest.Search(t, &lockdtest.ExploreOptions{Schedules: 5},
			func(w *lockdtest.World) {
				_ = w.DB().Update(func(*lockd.Txn) error { point(w); return nil })
			})
		if want += " is called by the function of an Update"; !strings.Contains(found.Text, want) {
			t.Errorf("got %q, want %q", found.Text, want)
		}
	}
}

// Ensure that a function that is missing is told of at once.
func TestExplore_NilBody(t *testing.T) {
	defer func() {
		if got := recover(); got != "lockdtest: nil function" {
			t.Errorf("got %v", got)
		}
	}()
	lockdtest.Explore(t, nil, nil)
}
