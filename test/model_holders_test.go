package lockd_test

import "github.com/lockd/lockd"

// Who may hold a lock, as plain code: R1, R3 and R5, and nothing else. The model asks it, and what
// a database shows is compared with it.

// lockModes has the modes in which one lock is held, delayed and waited for.
type lockModes struct {
	holders []lockd.LockMode
	delayed []lockd.LockMode // of a holder that was lost, while its lock-delay lasts
	queue   []lockd.LockMode // of the waiters, the first one first
}

// excludes is R1: a lock is held by one holder alone, or by holders that share it.
func excludes(a, b lockd.LockMode) bool { return a == lockd.Exclusive || b == lockd.Exclusive }

// single reports whether the holders may have the lock together.
func (l lockModes) single() bool {
	for i, a := range l.holders {
		for _, b := range l.holders[:i] {
			if excludes(a, b) {
				return false
			}
		}
	}
	return true
}

// takeable reports whether a request in the mode may have the lock, apart from the queue. R5 is R1
// once more: during the delay a lost holder excludes the same modes as before.
func (l lockModes) takeable(mode lockd.LockMode) bool {
	for _, list := range [][]lockd.LockMode{l.holders, l.delayed} {
		for _, other := range list {
			if excludes(mode, other) {
				return false
			}
		}
	}
	return true
}

// front is R3: how many waiters, from the first on, are granted the lock together.
func (l lockModes) front() int {
	for n, mode := range l.queue {
		if !l.takeable(mode) {
			return n
		}
		l.holders = append(l.holders[:len(l.holders):len(l.holders)], mode)
	}
	return len(l.queue)
}
