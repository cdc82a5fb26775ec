package lockd

import (
	"time"

	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/schema"
)

// delay keeps a lock from everybody after its holder was lost. It belongs to the name of the key,
// whether there is such a key or not (K38).
type delay struct {
	key   string
	until time.Time
	slot  bool // of a semaphore: it was lost, and counts until the delay is over
	over  expiry.Item
}

func newDelay(key string, until time.Time) *delay {
	d := &delay{key: key, until: until}
	d.over = expiry.Item{Owner: d, Rank: expiry.Grant}
	return d
}

// setDelay begins a lock-delay now; it replaces one that lasts (S32).
func (tx *Txn) setDelay(key string, length time.Duration) {
	if length <= 0 {
		return
	}
	db := tx.db
	state := db.state(key)
	d := newDelay(key, tx.clock().Add(length))
	d.slot = tx.losesSlot(key)
	tx.effects = append(tx.effects, effect{kind: delaySet, delay: d, replaced: state.delay})
	db.swapDelay(state, d)
	db.store.Delays.Put(key, schema.Delay{
		Key: key, Until: d.until.Round(0), Length: length, Index: db.store.Next(),
	})
}

// shortenDelays writes what is left of delays that last shorter than their rows say, because the
// wall clock was set back since: the next Open does not begin them anew once more.
func (tx *Txn) shortenDelays() {
	db := tx.db
	for key, row := range db.store.Delays.Ascend("") {
		state := db.locks[key]
		if state == nil || state.delay == nil {
			continue
		}
		if until := state.delay.until.Round(0); until.Before(row.Until) {
			shorter := *row
			shorter.Until = until
			db.store.Delays.Put(key, shorter)
		}
	}
}

// swapDelay puts d, or none, in the place of the delay that is there.
func (db *DB) swapDelay(state *lockState, d *delay) {
	if state.delay != nil {
		db.expiry.Remove(&state.delay.over)
		db.slotBack(state.delay)
	}
	state.delay = d
	if d != nil {
		db.expiry.Set(&d.over, d.until)
		db.slotLost(d)
	}
	db.tidy(state)
}

// endDelay gives the lock to the first who waits for it. That nobody does is no write: the row
// goes with the next one.
func (tx *Txn) endDelay(d *delay) {
	db := tx.db
	state := db.locks[d.key]
	if state == nil || state.delay != d {
		return // replaced meanwhile
	}
	state.delay = nil
	db.slotBack(d)
	db.overs = append(db.overs, d.key)
	tx.serve(d.key)
	tx.serveContenders(prefixOf(d.key))
	db.tidy(state)
}

// maxSweep is how many rows of delays that are over one write takes along.
const maxSweep = 64

// sweepDelays removes rows of delays that are over, with a write that is made anyway.
func (tx *Txn) sweepDelays() {
	db := tx.db
	swept := db.overs[max(0, len(db.overs)-maxSweep):]
	for _, key := range swept {
		// A new delay of the key has the row for itself.
		if state := db.locks[key]; state == nil || state.delay == nil {
			tx.dropDelay(key)
		}
	}
	clear(swept)
	db.overs = db.overs[:len(db.overs)-len(swept)]
}

// recallDelays finds the rows of delays that are over anew: a drop brings back those that were
// swept.
func (db *DB) recallDelays() {
	db.overs = db.overs[:0]
	for key := range db.store.Delays.Ascend("") {
		if state := db.locks[key]; state == nil || state.delay == nil {
			db.overs = append(db.overs, key)
		}
	}
}

// dropDelay removes the row of a delay that is over, if there is one.
func (tx *Txn) dropDelay(key string) {
	if tx.db.store.Delays.Len() > 0 && tx.db.store.Delays.Newest(key) != nil {
		tx.db.store.Delays.Delete(key)
	}
}
