package engine

import "errors"

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
