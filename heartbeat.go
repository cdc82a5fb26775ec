package lockd

import (
	"time"

	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/schema"
)

// heartbeat is when a check becomes critical unless it is put again: there is one for each that has
// a TTL and is not critical.
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

// lapses reports whether the check becomes critical unless it is put again.
func lapses(row *schema.Check) bool { return row.TTL > 0 && Status(row.Status) != Critical }

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

// endTTL has the check become critical no more by itself.
func (tx *Txn) endTTL(check string) {
	if b := tx.db.heartbeats[check]; b != nil {
		tx.effects = append(tx.effects, effect{kind: ttlBegun, heartbeat: b, until: b.deadline})
		tx.db.setHeartbeat(b, time.Time{})
	}
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
	next := *tx.db.store.Checks.Newest(b.check)
	next.Status, next.Output = uint8(Critical), lapsed
	next.ModifyIndex = tx.db.store.Next()
	tx.writeCheck(b.check, next)
}
