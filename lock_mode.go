package lockd

import (
	"strconv"

	"github.com/lockd/lockd/internal/engine"
)

// LockMode says whether a lock is held by one holder alone (R1). No call for a shared lock
// overtakes a call that waits to have it alone (R3).
type LockMode uint8

// The modes.
const (
	Exclusive LockMode = LockMode(engine.Exclusive) // no other holder has the lock
	Shared    LockMode = LockMode(engine.Shared)    // any number of holders have it
)

// String returns the name of the mode.
func (m LockMode) String() string { return name(m, "exclusive", "shared") }

// name returns the word for a value of a small enumeration.
func name[E ~uint8](value E, words ...string) string {
	if int(value) < len(words) {
		return words[value]
	}
	return strconv.Itoa(int(value))
}
