package hook

// Turns decides which goroutine of a test goes on: one at a time runs, all others are held in one
// of these methods, or wait. The database calls them without its lock. A method that blocks returns
// when it is the caller's turn. A method that may end the goroutine does so by runtime.Goexit, when
// the process that the test plays has died.
type Turns interface {
	// Begin is called when a call begins, before it takes the database's lock. It may block, and
	// may end the goroutine.
	Begin()

	// Return is called when a call that has committed for others too is about to go on. It may
	// block, and may end the goroutine.
	Return()

	// Wait is called before a goroutine waits for something; the keys are those whose locks it
	// waits for. It calls end when it has waited, which may block, and may end the goroutine.
	Wait(why Reason, keys []string) (end func())

	// Hold is Wait for a goroutine that then owns something that others need: end never ends it.
	Hold() (end func())

	// Join is called by the database's own goroutine, when it begins. It may block. The goroutine
	// calls leave when it ends.
	Join() (leave func())
}

// Reason is what a goroutine waits for.
type Reason string

// The reasons.
const (
	Commit Reason = "a commit"               // Commit: its outcome.
	Locks  Reason = "the lock"               // Locks: a lock, several locks or a slot.
	Ending Reason = "the end of the session" // Ending: KeepAlive, which may go on for ever.
	Change Reason = "a change"               // Change: Watch and the like, perhaps for ever.
	Limit  Reason = "a change, or its limit" // Limit: Wait, which does not go on for ever.
	Work   Reason = "something to do"        // Work: the database's own goroutine.
	Others Reason = "another call"           // Others: Hold.
)

// Held is a lock, or a slot, that a call is about to return.
type Held struct {
	Key     string
	Session [16]byte
	Fence   uint64
	Err     func() error // of the handle
	Shared  func() bool  // the lock is shared, since its grant or a Downgrade
	Holds   func() bool  // whether the published state has the handle's grant
}
