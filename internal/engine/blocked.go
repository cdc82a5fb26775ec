package engine

import (
	"fmt"
	"time"

	"github.com/lockd/lockd/internal/schema"
)

// Obstacle is what keeps a session from a lock. The zero value means no obstacle.
type Obstacle uint8

// The obstacles.
const (
	ByHolder Obstacle = iota + 1 // a session holds the lock, or sessions share it
	ByDelay                      // the lock-delay of a lost holder is not over (K18)
	ByQueue                      // the lock could be granted, but others wait for it (G9, R3)
	BySlots                      // every slot of the semaphore is held, or lost and delayed
)

// Blocked is the refusal of a lock or a slot that a session cannot have now. Package lockd
// documents its fields in LockedError.
type Blocked struct {
	Key        string
	Obstacle   Obstacle
	Mode       Mode     // the mode that was asked for
	Holders    []Holder // of a shared lock
	Holder     schema.ID
	HolderName string
	Own        bool
	Fence      uint64
	Since      time.Time
	Held       time.Duration
	Waiters    int
	Until      time.Time
	Remaining  time.Duration
	Limit      int
}

// Error names the key. The text for users is package lockd's.
func (b *Blocked) Error() string { return fmt.Sprintf("key %q is locked", b.Key) }
