package engine_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// Ensure that the same operations at the same instants give the same rows, effects and events, byte
// for byte and in the same order: no iteration of a map decides anything.
func TestEngine_IsDeterministic(t *testing.T) {
	const steps = 400
	seeds := uint64(20)
	if raced { // all of it is done by one goroutine
		seeds /= 10
	}
	for name, make := range map[string]func(testing.TB, time.Duration) *world{
		"memory": newWorld, "batches": newBatches,
	} {
		for seed := range seeds {
			t.Run(fmt.Sprintf("%s/seed=%d", name, seed), func(t *testing.T) {
				slow := time.Duration(seed%2) * 3 * time.Second
				one, other := make(t, slow), make(t, slow)
				script := newScript(seed, one)
				var history []string
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("the script:\n%s", strings.Join(history, "\n"))
					}
				})
				for step := range steps {
					line, input := script.next()
					history = append(append(history, line), input...)
					got, want := one.observe(line, input), other.observe(line, input)
					if got != want {
						t.Fatalf("step %d, %s\n%s\ngives\n%s\nand\n%s", step, line,
							strings.Join(input, "\n"), got, want)
					}
				}
			})
		}
	}
}

// observe runs a command and returns all its output: the answer, the effects and events, and the
// rows that are published then.
func (w *world) observe(line string, input []string) string {
	w.trace = new(strings.Builder)
	w.run(line, input)
	w.show()
	w.recordRows()
	if err := w.engine.Check(); err != nil {
		w.t.Fatalf("%s: %v", line, err)
	}
	return w.answer() + w.trace.String()
}

// script makes up commands for a world, by what it has.
type script struct {
	*rand.Rand
	w    *world
	made int // names that were given
}

func newScript(seed uint64, w *world) *script {
	return &script{Rand: rand.New(rand.NewPCG(seed, 0)), w: w}
}

// next returns a command, and what follows on the next lines.
func (s *script) next() (line string, input []string) {
	switch n := s.IntN(100); {
	case n < 10:
		passed := time.Duration(s.IntN(2000)) * time.Millisecond
		return fmt.Sprintf("at %v", after(s.w.now)+passed), nil
	case n < 20:
		return "due", nil
	case n < 26:
		return "commit", nil
	case n < 29:
		return "take", nil
	case n < 32:
		return "drop", nil
	case n < 34 && len(s.w.sessions) > 0:
		return "renew " + s.session(), nil
	case n < 36:
		return s.rare()
	case n < 46:
		for range 1 + s.IntN(5) {
			input = append(input, s.operation())
		}
		if s.IntN(5) == 0 {
			input = append(input, "undo")
		}
		return "txn", input
	}
	if s.IntN(2) == 0 {
		return s.call(), nil
	}
	return s.operation(), nil
}

// rare returns a command that removes most of what there is.
func (s *script) rare() (line string, input []string) {
	switch s.IntN(8) {
	case 0:
		return "restore", []string{s.backup()}
	case 1:
		return "dismiss", nil
	case 2, 3, 4:
		return "txn", []string{`put x/.lock {"Limit":4}`, `put y/.lock {"Limit":4}`}
	}
	for _, name := range s.living() {
		input = append(input, "end "+name)
	}
	return "txn", input[len(input)/2:]
}

// call returns a call of a handle, which is a transaction of its own.
func (s *script) call() string {
	if len(s.w.sessions) == 0 {
		return "due"
	}
	session := s.session()
	prefix := s.one("x", "y")
	switch n := s.IntN(30); {
	case n < 4:
		return "try " + session + " " + s.key() + s.one("", " after=remove") + s.mode() +
			s.one("", " max=2s") + s.name(" as=h")
	case n < 12:
		keys := []string{"k0", "k1", "k2", "k3", "k4"}
		s.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		return "wait " + session + " " + strings.Join(keys[:1+s.IntN(3)], " ") +
			s.one("", " after=remove") + s.mode() +
			s.one("", " max=2s") + s.carries() + s.name(" as=w")
	case n < 18:
		return "wait-slot " + session + " " + prefix + s.one("", " limit=2") + s.carries() +
			s.name(" as=w")
	case n < 20:
		return "slot " + session + " " + prefix + s.one("", " limit=2") + s.name(" as=h")
	case n < 26 && len(s.w.holds) > 0:
		return s.one("release ", "release ", "downgrade ") + s.one(names(s.w.holds)...)
	case n < 29 && len(s.w.waiters) > 0:
		return "withdraw " + s.one(names(s.w.waiters)...)
	}
	return "expire " + session
}

// carries has the call carry a lock, now and then.
func (s *script) carries() string {
	if len(s.w.holds) == 0 || s.IntN(3) > 0 {
		return ""
	}
	return " carries=" + s.one(names(s.w.holds)...)
}

// operation returns an operation for a transaction. It names only what existed before it.
func (s *script) operation() string {
	if len(s.w.sessions) == 0 || len(s.living()) < 10 && s.IntN(2) == 0 {
		return s.newSession()
	}
	session := s.session()
	prefix := s.one("x", "y")
	switch n := s.IntN(34); {
	case n < 4:
		return fmt.Sprintf("put %s %d", s.key(), s.IntN(3))
	case n < 6:
		return "delete " + s.key()
	case n < 7:
		return "delete-prefix" + s.one(" k", " x/", " y/", "")
	case n < 12:
		return "lock " + s.key() + " " + session + s.one("", " value=v") + s.mode()
	case n < 14:
		return "unlock " + s.key() + " " + session
	case n < 15:
		return fmt.Sprintf("limit %s %d", prefix, 1+s.IntN(4))
	case n < 16:
		return "put " + prefix + "/.lock " + s.one(`{"Limit":2}`, "x",
			`{"Limit":1,"Holders":["<`+session+`>"]}`,
			`{"Limit":3,"Holders":{"<`+session+`>":true}}`)
	case n < 19:
		return "end " + session + s.one("", " cause=closed", " cause=restored")
	}
	return s.ofCatalog(session)
}

// ofCatalog returns an operation on the catalog, or on what is attached to a session.
func (s *script) ofCatalog(session string) string {
	switch n := s.IntN(15); {
	case n < 2:
		return "node " + s.node() + s.one("", " id=1", " id=2") + s.one("", " address=a")
	case n < 3:
		return "delete-node " + s.one("n", "m")
	case n < 5:
		return "service " + s.node() + " " + s.one("web", "db")
	case n < 6:
		return "delete-service " + s.node() + " " + s.one("web", "db")
	case n < 9:
		return "check " + s.node() + " " + s.check() + " status=" + s.one(statuses...) +
			s.one("", " service=web") + s.one("", " ttl=4s")
	case n < 10:
		return "delete-check " + s.node() + " " + s.check()
	case n < 14:
		return "attach " + s.one(session, "-") + " " + s.one("a", "b", "c", "d") + s.name(" v")
	}
	return "detach " + s.one("a", "b", "c", "d")
}

// newSession returns a command that makes a session. About ten live at a time.
func (s *script) newSession() string {
	line := "session" + s.name(" s") + fmt.Sprintf(" delay=%ds", s.IntN(3))
	if s.IntN(4) > 0 {
		line += fmt.Sprintf(" ttl=%ds", 5+s.IntN(60))
	}
	line += s.one("", " behavior=delete")
	if node := s.one("", "", "n", "m"); node != "" {
		line += " node=" + node + s.one("", " checks="+s.check())
	}
	return line
}

func (s *script) backup() string {
	var rows []string
	for i := range 4 {
		if s.IntN(2) == 0 {
			rows = append(rows, fmt.Sprintf(`{"Key": "k%d", "Value": "MQ=="}`, i))
		}
	}
	return `{"Keys": [` + strings.Join(rows, ", ") + `], "Nodes": [{"Name": "m", "ID": "1"}],` +
		`"Checks": [{"Node": "m", "ID": "c0", "Status": 2}]}`
}

func (s *script) mode() string { return s.one("", "", " mode=shared") }

func (s *script) one(of ...string) string { return of[s.IntN(len(of))] }

// name returns a new name, which begins with the text.
func (s *script) name(text string) string {
	s.made++
	return fmt.Sprintf("%s%d", text, s.made)
}

// session returns a session that lives, or now and then any session.
func (s *script) session() string {
	all := names(s.w.sessions)
	if living := s.living(); len(living) > 0 && s.IntN(20) > 0 {
		all = living
	}
	return s.one(all...)
}

func (s *script) living() (living []string) {
	for name, session := range sorted(s.w.sessions) {
		if session.Live() {
			living = append(living, name)
		}
	}
	return living
}

func (s *script) key() string {
	if s.IntN(4) == 0 {
		return s.one("x", "y") + "/<" + s.session() + ">"
	}
	return fmt.Sprintf("k%d", s.IntN(5))
}

func (s *script) node() string { return s.one("n", "m", "local") }

func (s *script) check() string { return s.one("c0", "c1") }

// names are the keys of the map, in order.
func names[V any](m map[string]V) []string {
	var list []string
	for name := range sorted(m) {
		list = append(list, name)
	}
	return list
}
