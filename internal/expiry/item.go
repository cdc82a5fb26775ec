package expiry

import "time"

// Rank orders items that are due at the same instant: renewals come first, then ends, then grants.
// The zero value is Renewal.
type Rank uint8

// The ranks, in their order.
const (
	Renewal Rank = iota // something is renewed in time
	End                 // something is over
	Grant               // something becomes free
)

// Item is one deadline. It is embedded in, or pointed to by, what it belongs to, and must not be
// copied while it is queued. The zero value is ready, and in no heap.
type Item struct {
	// Owner is what the deadline belongs to. The heap never reads it.
	Owner any

	// Rank decides among items that are due at the same instant. It must not be changed while the
	// item is queued.
	Rank Rank

	position int32     // where it is in the heap; small, for there may be very many items
	heap     *Heap     // that it is in, nil if none
	at       time.Time // when it is due
	order    uint64    // the count of Set, which decides between equals
}

// Queued reports whether the item is in a heap.
func (it *Item) Queued() bool { return it.heap != nil }

// At returns the instant for which the item was last set. It means nothing for an item that was
// never set.
func (it *Item) At() time.Time { return it.at }

// before reports whether the item comes out of the heap before other does.
func (it *Item) before(other *Item) bool {
	if c := it.at.Compare(other.at); c != 0 {
		return c < 0
	}
	if it.Rank != other.Rank {
		return it.Rank < other.Rank
	}
	return it.order < other.order
}
