package engine

import (
	"time"

	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/schema"
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

// lease gives a check another deadline; the zero one takes it away.
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
	e.postpone(&l.due, deadline)
}

// postpone has the item be due at the deadline or before: a deadline that moves on leaves the heap
// as it is, and is put right by early when the older one comes up.
func (e *Engine) postpone(it *expiry.Item, deadline time.Time) {
	if !it.Queued() || deadline.Before(it.At()) {
		e.due.Set(it, deadline)
	}
}

// early reports whether an item that has come up is for a deadline that has moved on, and sets it
// anew then.
func (e *Engine) early(it *expiry.Item, deadline time.Time) bool {
	if !it.At().Before(deadline) {
		return false
	}
	e.due.Set(it, deadline)
	return true
}
