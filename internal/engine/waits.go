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
	session *schema.Session
	lasted  time.Duration
}

// recordWaits notes with each grant among the events for how long its session had waited for it: as
// long as the call that had waited longest, if calls of one session share a grant. It is for a
// transaction that has served some.
func (tx *Txn) recordWaits(events []Event) {
	var one [1]waited // there are seldom more
	waits := tx.waits(one[:0])
	if len(waits) > 1 {
		slices.SortFunc(waits, func(a, b waited) int {
			return cmp.Or(a.compare(b.key, b.session), cmp.Compare(b.lasted, a.lasted))
		})
	}
	for i := range events {
		r := &events[i].Body
		if r.Holder == nil {
			continue
		}
		at := 0
		if len(waits) > 1 { // to look for one takes longer than to look at it
			at, _ = slices.BinarySearchFunc(waits, r.Holder,
				func(w waited, s *schema.Session) int { return w.compare(events[i].Name, s) })
		}
		if at < len(waits) && waits[at].session == r.Holder && waits[at].key == events[i].Name {
			r.Waited = waits[at].lasted
		}
	}
}

// compare orders waits by what was granted: the key's lock, to the session.
func (w *waited) compare(key string, session *schema.Session) int {
	return cmp.Or(cmp.Compare(w.key, key), bytes.Compare(w.session.ID[:], session.ID[:]))
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
				waits = append(waits, waited{hold.Key, hold.Session.Row, lasted})
			}
		}
	}
	return waits
}
