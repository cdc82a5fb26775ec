package engine

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/lockd/lockd/internal/schema"
)

// waited is for how long a call had waited for a lock, or a slot, when it was granted.
type waited struct {
	key     string
	session schema.ID
	lasted  time.Duration
}

// recordWaits notes with each grant among the events for how long its session had waited for it: as
// long as the call that had waited longest, if calls of one session share a grant.
func (tx *Txn) recordWaits(events []Event) {
	var one [1]waited // there are seldom more
	waits := tx.waits(one[:0])
	if len(waits) == 0 {
		return
	}
	slices.SortFunc(waits, func(a, b waited) int {
		return cmp.Or(a.compare(b.key, b.session), cmp.Compare(b.lasted, a.lasted))
	})
	for i := range events {
		r := &events[i].Body
		if r.Holder == nil {
			continue
		}
		at, found := slices.BinarySearchFunc(waits, r.Holder.ID,
			func(w waited, session schema.ID) int { return w.compare(events[i].Name, session) })
		if found {
			r.Waited = waits[at].lasted
		}
	}
}

// compare orders waits by what was granted: the key's lock, to the session.
func (w *waited) compare(key string, session schema.ID) int {
	return cmp.Or(cmp.Compare(w.key, key), bytes.Compare(w.session[:], session[:]))
}

// waits appends the waits that grants of the transaction have ended, in no order. A lock that was
// only taken over had been granted before.
func (tx *Txn) waits(waits []waited) []waited {
	for i := range tx.effects {
		f := &tx.effects[i]
		if f.Kind != WaiterServed {
			continue
		}
		lasted := Lasted(f.Waiter.Began, f.instant)
		for j := range f.Waiter.claims {
			if hold := f.Waiter.claims[j].hold; hold.Fence == tx.next() {
				waits = append(waits, waited{hold.Key, hold.Session.Row.ID, lasted})
			}
		}
	}
	return waits
}
