package engine

import (
	"time"

	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/schema"
)

// The statuses of a check that a rule names. Package catalog documents them all.
const (
	// Critical ends sessions.
	Critical = 0
	// Passing is the largest status.
	Passing = 2
)

func newCheckLease(check string) *checkLease {
	l := &checkLease{check: check}
	l.due = expiry.Item{Owner: l, Rank: expiry.End}
	return l
}

// lapsed is the output of a check whose TTL is over (N8).
const lapsed = "TTL expired"

// lapses reports whether the check becomes critical unless it is put again.
func lapses(row *schema.Check) bool { return row.TTL > 0 && row.Status != Critical }

// lease sets the deadline of a check; the zero time removes it.
func (tx *Txn) lease(check string, deadline time.Time) {
	l := tx.engine.leases[check]
	if l == nil {
		if deadline.IsZero() {
			return
		}
		l = newCheckLease(check)
	}
	f := tx.effect(leaseBegun)
	f.lease, f.instant = l, l.deadline
	tx.engine.setLease(l, deadline)
}

// setLease is lease without an effect to take back.
func (e *Engine) setLease(l *checkLease, deadline time.Time) {
	l.deadline = deadline
	if deadline.IsZero() {
		e.due.Remove(&l.due)
		delete(e.leases, l.check)
		return
	}
	e.leases[l.check] = l
	// A later deadline leaves the heap as it is: early corrects the item when the older comes up.
	if !l.due.Queued() || deadline.Before(l.due.At()) {
		e.due.Set(&l.due, deadline)
	}
}

// early reports whether an item has come up before its deadline, which was moved on since. If so,
// it queues the item again.
func (e *Engine) early(it *expiry.Item, deadline time.Time) bool {
	if !it.At().Before(deadline) {
		return false
	}
	e.due.Set(it, deadline)
	return true
}
