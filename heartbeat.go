package lockd

import (
	"time"

	"github.com/lockd/lockd/internal/expiry"
)

// heartbeat is when a check becomes critical unless it is put again. It stays until it is due,
// whatever becomes of the check: its row decides then.
type heartbeat struct {
	check    string // its key in the catalog
	deadline time.Time
	due      expiry.Item
}

func newHeartbeat(check string) *heartbeat {
	b := &heartbeat{check: check}
	b.due = expiry.Item{Owner: b, Rank: expiry.End}
	return b
}

// lapsed is the output of a check whose TTL is over (N8).
const lapsed = "TTL expired"

// beginTTL begins the TTL of a check anew, from now.
func (tx *Txn) beginTTL(check string, ttl time.Duration) {
	db := tx.db
	b := db.heartbeats[check]
	if b == nil {
		b = newHeartbeat(check)
	}
	tx.effects = append(tx.effects, effect{kind: ttlBegun, heartbeat: b, until: b.deadline})
	db.setHeartbeat(b, tx.clock().Add(ttl))
}

// setHeartbeat gives a check its deadline; the zero one takes it away.
func (db *DB) setHeartbeat(b *heartbeat, deadline time.Time) {
	b.deadline = deadline
	switch {
	case deadline.IsZero():
		db.expiry.Remove(&b.due)
		delete(db.heartbeats, b.check)
	case !b.due.Queued() || deadline.Before(b.due.At()):
		db.heartbeats[b.check] = b
		db.expiry.Set(&b.due, deadline)
	}
	// Else the heap has an older deadline, which is put right when that comes up.
}

// lapse makes a check critical whose TTL is over.
func (tx *Txn) lapse(b *heartbeat) {
	db := tx.db
	tx.effects = append(tx.effects, effect{kind: ttlBegun, heartbeat: b, until: b.deadline})
	db.setHeartbeat(b, time.Time{})
	row := db.store.Checks.Newest(b.check)
	if row == nil || row.TTL == 0 || Status(row.Status) == Critical {
		return // it was changed since
	}
	next := *row
	next.Status, next.Output, next.ModifyIndex = uint8(Critical), lapsed, db.store.Next()
	tx.writeCheck(b.check, next)
}
