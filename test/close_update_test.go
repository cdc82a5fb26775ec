package lockd_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/store"
)

// Ensure that Close ends, and an Update that waits for its turn meanwhile is refused, while a
// commit is under way that ends when the function of another Update runs.
func TestG12_CloseBesideUpdatesAndACommit(t *testing.T) {
	onFile(t, func(h *harness) {
		var held atomic.Bool
		commit, function := make(chan struct{}), make(chan struct{})
		h.hook(store.Hooks{BeforeCommit: func() error {
			if held.Swap(false) {
				<-commit
			}
			return nil
		}})
		held.Store(true)
		outcomes := make(chan error, 4)
		begin := func(call func() error) {
			go func() { outcomes <- call() }()
			h.settle()
		}
		begin(func() error { return second(h.Put("k", nil, nil)) })
		begin(func() error {
			return h.Update(func(*lockd.Txn) error {
				<-function
				return nil
			})
		})
		begin(h.Close)
		begin(func() error { return h.Update(func(*lockd.Txn) error { return nil }) })
		close(commit)
		h.settle()
		close(function)
		refused := 0
		for range cap(outcomes) {
			if err := <-outcomes; errors.Is(err, lockd.ErrClosed) {
				refused++
			} else {
				h.must(err)
			}
		}
		if refused != 1 {
			t.Errorf("%d calls were refused, want the Update that came after Close", refused)
		}
	})
}
