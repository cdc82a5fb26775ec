package engine_test

import (
	"fmt"
	"testing"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// BenchmarkWait is a call that begins to wait for a lock, behind 1,000 others, and gives up. Its
// context carries nothing, or a lock. With a lock, the holder waits for another lock whose holder
// waits too, and so on, for the given number of steps.
func BenchmarkWait(b *testing.B) {
	b.Run("nothing", func(b *testing.B) { benchmarkWait(b, -1) })
	for _, steps := range []int{0, 1, 10, 100} {
		b.Run(fmt.Sprintf("steps=%d", steps), func(b *testing.B) { benchmarkWait(b, steps) })
	}
}

func benchmarkWait(b *testing.B, steps int) {
	p := &program{w: newWorld(b, 0)}
	add := func(i int) *thread {
		t := &thread{name: fmt.Sprintf("t%d", i)}
		err := p.w.engineWrite(func(tx *engine.Txn) (err error) {
			t.session, err = tx.NewSession(schema.Session{ID: idOf(t.name)})
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	lock := func(t *thread, key string) {
		if _, err := p.lock(t, []string{key}, engine.Exclusive, true); err != nil {
			b.Fatal(err)
		}
	}
	holders := make([]*thread, max(1, steps+1))
	for i := range holders {
		holders[i] = add(i)
		lock(holders[i], fmt.Sprintf("k%d", i))
	}
	for i := range len(holders) - 1 {
		lock(holders[i], fmt.Sprintf("k%d", i+1))
	}
	for i := range 1000 {
		lock(add(1000+i), "k0")
	}
	caller := add(999)
	lock(caller, "own")
	var carried *engine.Carried
	if steps >= 0 {
		carried = &engine.Carried{Owner: caller.held[0]}
	}
	for b.Loop() {
		err := p.w.engineWrite(func(tx *engine.Txn) error {
			w := &engine.Waiter{Session: caller.session, Carried: carried}
			if err := tx.Wait(w, []string{"k0"}); err != nil {
				return err
			}
			tx.Withdraw(w)
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
