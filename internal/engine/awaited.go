package engine

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockd/lockd/internal/waitq"
)

// awaited is a lock that calls wait for, as it is published.
type awaited struct {
	key     string
	state   *lockState            // nil: only what is undecided knows of it
	waiters int                   // how many they are
	first   *waitq.Place[*Waiter] // that of the one that came first
}

// MostAwaited returns the n locks that most calls wait for, the most awaited first: of two with as
// many waiters that whose first has waited longer, and then by the key. They are fewer if no more
// are waited for.
func (e *Engine) MostAwaited(n int, now time.Time) []LockView {
	if n <= 0 {
		return nil
	}
	pending := e.pending()
	var most []awaited
	consider := func(key string, state *lockState) {
		if a := awaitedOf(key, state, pending[key]); a.waiters > 0 {
			if most = append(most, a); len(most)/2 >= n { // sorted once for n more
				most = leading(most, n)
			}
		}
	}
	for key, state := range e.locks {
		consider(key, state)
	}
	for key := range pending {
		if e.locks[key] == nil {
			consider(key, nil)
		}
	}
	var views []LockView
	for _, a := range leading(most, n) {
		views = append(views, e.view(a.key, a.state, pending[a.key], now))
	}
	return views
}

// awaitedOf counts the calls that wait for the key's lock: see view.
func awaitedOf(key string, state *lockState, p *undecided) awaited {
	a := awaited{key: key, state: state}
	if state != nil {
		a.waiters, a.first = state.queue.Len(), state.queue.Front()
	}
	if p != nil {
		a.waiters += len(p.aside)
		for _, place := range p.aside {
			if a.first == nil || place.Ticket() < a.first.Ticket() {
				a.first = place
			}
		}
	}
	return a
}

// leading returns the first n in the order of MostAwaited, or all if there are no more.
func leading(most []awaited, n int) []awaited {
	slices.SortFunc(most, func(a, b awaited) int {
		return cmp.Or(cmp.Compare(b.waiters, a.waiters),
			a.first.Waiter.Began.Compare(b.first.Waiter.Began), strings.Compare(a.key, b.key))
	})
	return most[:min(n, len(most))]
}
