package engine_test

import (
	"testing"
	"time"

	"github.com/lockd/lockd/internal/schema"
)

// Ensure that a renewal touches only the session's own memory, which fits into one cache line of
// the processor together with its handle.
func TestExtend_TouchesOnlyTheSession(t *testing.T) {
	w := newWorld(t, 0)
	e, now := w.engine, w.now
	tx := e.Begin(now)
	s, err := tx.NewSession(schema.Session{ID: schema.ID{1}, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	tx.Seal()
	tx.Done()
	if !s.ExtendAlone(now.Add(time.Minute - 1)) {
		t.Fatal("a session that lives was not renewed")
	}
	if due, _, ok := e.PopDue(now.Add(2*time.Minute-2), 10); ok {
		t.Fatalf("%v is due, although it was renewed", due)
	}
}
