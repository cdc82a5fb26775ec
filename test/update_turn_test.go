package lockd_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that a goroutine which does one Update after the other does not keep other calls from
// writing. With one processor it locks the mutex again, whenever a function has returned, before
// the call that waits can. If the functions take long, that call is next all the same, also if
// meanwhile a KeepAlive has set the timer anew.
func TestUpdate_EachCallGetsItsTurn(t *testing.T) {
	for _, test := range []struct {
		name  string
		takes time.Duration // each function
		keeps bool          // a KeepAlive begins at the end of each
		most  int           // functions until four calls that wait have had their turns
	}{
		{"Short", 0, false, 40},
		{"Long", time.Millisecond, false, 5},
		{"Kept", time.Millisecond, true, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, "", func(h *harness) { h.turns(test.takes, test.keeps, test.most) })
		})
	}
}

func (h *harness) turns(takes time.Duration, keeps bool, most int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := h.session(nil)
	var kept []*lockd.Session
	for range most {
		kept = append(kept, h.session(&lockd.SessionOptions{TTL: time.Minute}))
	}
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	stop, step := false, make(chan struct{})
	busy := start(func() error {
		for !stop {
			if err := h.Update(func(*lockd.Txn) error { <-step; return nil }); err != nil {
				return err
			}
		}
		return nil
	})
	h.settle()
	write := func(tx *lockd.Txn) error { return second(tx.Put("updated", nil, nil)) }
	calls := []*call{
		start(func() error { return second(h.Put("put", nil, nil)) }),
		start(func() error { return h.Update(write) }),
		start(func() error { return second(s.TryLock("locked", nil)) }),
		start(func() error { return h.Update(write) }),
	}
	h.settle()
	isWaiting := func(c *call) bool { return !c.returned() }
	for functions := 0; slices.ContainsFunc(calls, isWaiting); functions++ {
		if functions == most {
			h.t.Fatalf("a call still waits after %d functions", functions)
		}
		h.clock.Add(takes)
		if keeps {
			start(func() error { return kept[functions].KeepAlive(ctx) })
			h.settle()
		}
		step <- struct{}{}
		h.settle()
	}
	for _, c := range calls {
		h.must(c.wait())
	}
	stop = true
	step <- struct{}{}
	h.must(busy.wait())
}

// Ensure that every call that waits for the function of an Update goes on when it has returned:
// calls that write, and after Close calls that are refused.
func TestUpdate_AllThatWaitGoOn(t *testing.T) {
	each(t, func(h *harness) {
		for _, closing := range []bool{false, true} {
			u := h.updating()
			var calls []*call
			if closing {
				calls = append(calls, start(h.Close))
				h.settle()
			}
			for range 10 {
				calls = append(calls,
					start(func() error { return second(h.Put("k", nil, nil)) }),
					start(func() error { return h.Update(func(*lockd.Txn) error { return nil }) }),
					start(func() error {
						return h.Update(func(*lockd.Txn) error { return errTest })
					}),
				)
			}
			h.settle()
			for i, c := range calls {
				if c.returned() {
					t.Fatalf("call %d has not waited for the function: %v", i, c.wait())
				}
			}
			u.end()
			for i, c := range calls {
				err := c.wait()
				refused := closing && errors.Is(err, lockd.ErrClosed)
				if err != nil && !errors.Is(err, errTest) && !refused {
					t.Errorf("call %d: %v", i, err)
				}
			}
		}
	})
}
