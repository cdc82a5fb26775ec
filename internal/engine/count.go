package engine

import (
	"errors"
	"slices"
	"time"
)

// Counts has the counts of the published state, except that Waiters and GaveUp count calls.
type Counts struct {
	Keys, Sessions, Locks, Shares, Waiters int
	Grants, GaveUp                         uint64
	Ends                                   Ends
	LockWaits, LockHolds                   Histogram
	SlotWaits, SlotHolds                   Histogram
}

// Ends counts ended sessions and locks, by cause. Locks that ended with a session do not count.
type Ends struct {
	Closed, Expired, Destroyed, NodeGone, CheckGone, CheckCritical, ProcessGone, Restored uint64

	Unlocked, KeyDeleted, Forced, HeldTooLong uint64
}

func (e *Ends) addSession(cause error) {
	switch {
	case errors.Is(cause, ErrClosed):
		e.Closed++
	case errors.Is(cause, ErrExpired):
		e.Expired++
	case errors.Is(cause, ErrDestroyed):
		e.Destroyed++
	case errors.Is(cause, ErrNodeGone):
		e.NodeGone++
	case errors.Is(cause, ErrCheckGone):
		e.CheckGone++
	case errors.Is(cause, ErrCheckCritical):
		e.CheckCritical++
	case errors.Is(cause, ErrProcessGone):
		e.ProcessGone++
	case errors.Is(cause, ErrRestored):
		e.Restored++
	}
}

// addLock leaves out the causes of sessions, which addSession counts.
func (e *Ends) addLock(cause error) {
	switch {
	case cause == ErrUnlocked, cause == errDowngraded: // most of them, so it comes first
		e.Unlocked++
	case errors.Is(cause, ErrKeyDeleted):
		e.KeyDeleted++
	case errors.Is(cause, ErrForced):
		e.Forced++
	case errors.Is(cause, ErrHeldTooLong):
		e.HeldTooLong++
	}
}

// Histogram counts durations. Package lockd documents the one that users see.
type Histogram struct {
	Buckets [len(Bounds{}) + 1]uint64
	Seconds float64 // their sum
}

// Bounds has the longest duration of each bucket, except the last, which has all longer durations.
type Bounds [14]time.Duration

// HistogramBounds returns the bounds of every histogram. They are close together around the time
// that a commit takes, and reach to the time that a leader lasts.
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
		bounds := HistogramBounds()
		bucket, _ = slices.BinarySearch(bounds[:], took)
	}
	h.Buckets[bucket]++
	h.Seconds += took.Seconds()
}
