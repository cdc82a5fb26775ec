package engine_test

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/lockd/lockd/internal/engine"
)

// TestRules runs the files in testdata: each has the rules of one subject, as commands and what
// they answer. A stanza begins with a comment that has the rule's number and ends with the next
// "new", which is a new engine. Run with -rewrite to see what differs, as a change of the files.
func TestRules(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld(t, 0)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				w = newStanza(t, d)
				return ""
			}
			w.t = t
			w.run(d.FullCmd(), lines(d.Input))
			if err := w.engine.Check(); err != nil {
				d.Fatalf(t, "%v", err)
			}
			if err := w.engine.CheckReferences(); err != nil {
				d.Fatalf(t, "%v", err)
			}
			return w.answer()
		})
	})
}

// newStanza returns a new world: in memory, with batches, or with a file. With slow=5s the engine
// tells what lasts that long. The commands of the input come first, and none may be refused.
func newStanza(t *testing.T, d *datadriven.TestData) *world {
	var slow time.Duration
	if text := ""; d.HasArg("slow") {
		d.ScanArgs(t, "slow", &text)
		var err error
		if slow, err = time.ParseDuration(text); err != nil {
			d.Fatalf(t, "%v", err)
		}
	}
	w := newWorld(t, slow)
	switch {
	case d.HasArg("batches"):
		w = newBatches(t, slow)
	case d.HasArg("file"):
		w = newFile(t, slow)
	}
	for _, line := range lines(d.Input) {
		w.run(line, nil)
		w.commit()
	}
	for line := range strings.Lines(w.answer()) {
		if strings.HasPrefix(line, "refused") {
			d.Fatalf(t, "%s", line)
		}
	}
	return w
}

func lines(text string) []string {
	if text = strings.TrimSpace(text); text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// run runs one command. An operation runs in a transaction of its own.
func (w *world) run(line string, input []string) {
	w.t.Helper()
	command, a := w.parse(line)
	a.input = input
	switch command {
	case "at": // the instant from now on, which ends nothing by itself
		w.now = begin.Add(a.duration(a.word()))
	case "due":
		w.endDue()
	case "renew":
		s := a.session()
		if s.Extend(w.now) {
			w.printf("renewed\n")
		} else {
			w.printf("not renewed\n")
		}
	case "keep": // a call begins to keep the session alive
		w.engine.Keep(a.session(), w.now)
	case "unkeep": // and ends that
		w.engine.StopKeeping(a.session(), w.now)
	case "next":
		if at, ok := w.engine.Next(); ok {
			w.printf("%v\n", after(at))
		} else {
			w.printf("never\n")
		}
	case "take":
		w.take()
	case "commit":
		w.commit()
	case "drop":
		w.drop()
	case "reopen":
		w.reopen()
	case "published": // what a reader of the key sees
		w.printf("%s\n", entry(w.rows.Keys.Get(a.word())))
	case "show":
		w.show()
	case "show-sessions":
		w.showSessions()
	case "show-catalog":
		w.showCatalog()
	case "show-indexes":
		w.showIndexes()
	case "txn":
		w.refused(w.write(func(tx *engine.Txn) error { return w.transaction(tx, input) }))
		w.endRefused()
	default:
		w.refused(w.write(func(tx *engine.Txn) error { return w.operate(tx, command, a) }))
		w.endRefused()
	}
	a.done()
}

// transaction runs one operation for each line. An operation that is refused leaves the others as
// they are (T8), but "undo" takes back all of them.
func (w *world) transaction(tx *engine.Txn, input []string) error {
	for _, line := range input {
		if line == "undo" {
			return errUndo
		}
		command, a := w.parse(line)
		w.refused(w.operate(tx, command, a))
		a.done()
	}
	return nil
}

func (w *world) operate(tx *engine.Txn, command string, a *args) error {
	operation := operations[command]
	if operation == nil {
		w.t.Fatalf("%q: no such command", a.line)
	}
	return operation(tx, a)
}

// errUndo rolls a transaction back.
var errUndo = errors.New("undone")

func (w *world) refused(err error) {
	if err != nil {
		w.printf("refused: %s\n", w.problem(err))
	}
}

// sorted yields what the map has, in the order of the keys.
func sorted[K cmp.Ordered, V any](m map[K]V) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
}
