package engine_test

import (
	"testing"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Ensure that a delay is shown until it is over, and not until its timer has fired (G7).
func TestLockViews_G7_DelayIsOver(t *testing.T) {
	w := newWorld(t, 0)
	tx := w.engine.Begin(w.now)
	s, err := tx.NewSession(schema.Session{ID: schema.ID{1}, LockDelay: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Lock("k", s.Row.ID, engine.LockOptions{}); err != nil {
		t.Fatal(err)
	}
	tx.EndSession(s, engine.ErrDestroyed)
	tx.Seal()
	tx.Done()
	end := w.now.Add(time.Second)
	views := w.engine.LockViews(end.Add(-1))
	if len(views) != 1 || views[0].Key != "k" {
		t.Fatalf("before the end: %+v", views)
	}
	if until, _ := views[0].Delay(); !until.Equal(end) {
		t.Errorf("until %v, want %v", until, end)
	}
	if views := w.engine.LockViews(end); len(views) != 0 {
		t.Errorf("at the end: %+v", views)
	}
}
