package engine

import (
	"time"

	"github.com/lockd/lockd/internal/schema"
)

// Histogram counts durations. Package lockd documents the one that users see.
type Histogram struct {
	Buckets [len(Bounds{}) + 1]uint64

	// The sum is in two parts, for very many holders would overflow a Duration. To add to a float
	// takes longer.
	seconds uint64
	rest    time.Duration
}

// maxRest is how long the rest of a sum may be before it becomes seconds.
const maxRest = 1 << 62

// Seconds returns the sum of the durations.
func (h *Histogram) Seconds() float64 { return float64(h.seconds) + h.rest.Seconds() }

// Bounds is the longest duration of each bucket but the last, which has all that are longer.
type Bounds [14]time.Duration

// HistogramBounds returns the bounds of every histogram. They are close together where a commit
// ends, and reach to where a leader does.
func HistogramBounds() Bounds {
	return Bounds{
		time.Millisecond, 3 * time.Millisecond,
		10 * time.Millisecond, 30 * time.Millisecond,
		100 * time.Millisecond, 300 * time.Millisecond,
		time.Second, 3 * time.Second, 10 * time.Second, 30 * time.Second,
		2 * time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour,
	}
}

// Add counts one duration.
func (h *Histogram) Add(took time.Duration) {
	bucket := 0
	if took > time.Millisecond { // else it is in the first, as most are
		bucket = bucketOf(took)
	}
	h.Buckets[bucket]++
	if h.rest += took; h.rest >= maxRest {
		h.seconds += uint64(h.rest / time.Second)
		h.rest %= time.Second
	}
}

// bucketOf returns the bucket of a duration: that of the first bound which is no shorter.
func bucketOf(took time.Duration) int {
	for i, bound := range HistogramBounds() {
		if took <= bound {
			return i
		}
	}
	return len(Bounds{})
}

// countWait counts the wait that has ended with what it was for. That of a call that has given up
// meanwhile is counted there: see Withdraw.
func (c *Counts) countWait(served *Effect) {
	w := served.Waiter
	if w.left {
		return
	}
	waits := &c.LockWaits
	if w.Slot {
		waits = &c.SlotWaits
	}
	waits.Add(Lasted(w.Began, served.instant))
}

// countHold counts the grant that the event has ended, unless its beginning is not known.
func (c *Counts) countHold(ended *Record) {
	holds, granted := &c.LockHolds, int64(0)
	if ended.Kind == ShareEnded {
		granted = ended.Old.(*schema.Share).Granted
	} else {
		row := ended.Old.(*schema.Key)
		if granted = row.Granted; isSlot(row) {
			holds = &c.SlotHolds
		}
	}
	if granted != 0 {
		holds.Add(max(0, time.Duration(ended.Moment-granted)))
	}
}

// isSlot reports whether the row, which is locked, is the contender key of its holder. The flags,
// which keys of no semaphore have as good as never, come first.
func isSlot(row *schema.Key) bool {
	return row.Flags == semaphoreFlags && contenderOf(row.Key) == row.Session
}
