package lockd

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/store"
)

// Errors of the database as a whole.
var (
	// ErrClosed is returned after the database was closed. It is also the cause when the owner
	// closed a session or the database.
	ErrClosed = engine.ErrClosed

	// ErrInUse is returned by Open when another database has the file open for all of
	// Options.OpenTimeout.
	ErrInUse = store.ErrInUse

	// ErrCorrupt is returned when a file or a backup is damaged. The text says what can be done.
	ErrCorrupt = store.ErrCorrupt

	// ErrFormat is returned when a file or a backup is not lockd's, or has a newer format.
	ErrFormat = store.ErrFormat

	// ErrCommit is returned by a write that could not be made durable. Nothing of it is visible,
	// and the call may be repeated; a later Open may or may not find the write. errors.Is finds the
	// reason too, such as syscall.ENOSPC.
	ErrCommit = errors.New("commit did not succeed")

	// ErrFailed is returned by every write after a commit whose outcome is unknown. Reads go on.
	// See Crash in the package comment.
	ErrFailed = errors.New("database has failed, open it again")
)

// Errors of a call that a rule refused. The call has changed nothing.
var (
	// ErrInvalid is returned when an argument is out of its bounds. The text names the argument.
	ErrInvalid = store.ErrInvalid

	// ErrConflict is returned when the state is not what the call names.
	ErrConflict = engine.ErrConflict

	// ErrNotHeld is returned when the lock that the call names is not held, or no longer.
	ErrNotHeld = engine.ErrNotHeld

	// ErrNoSession is returned when a session does not exist, or has ended.
	ErrNoSession = engine.ErrNoSession

	// ErrCompacted is yielded by Watch when events after its index are no longer kept, and by
	// Follow as the Cause of a state after a gap.
	ErrCompacted = errors.New("events after this index are no longer kept")
)

// Causes of the end of a session or a lock, for errors.Is. [ErrClosed] is another, as are package
// catalog's errors for a node or check that is gone or critical.
var (
	// ErrExpired: a session was not renewed within its TTL and grace. The text says how long before
	// its end the session was last renewed or made.
	ErrExpired = engine.ErrExpired

	// ErrDestroyed: EndSession ended a session.
	ErrDestroyed = engine.ErrDestroyed

	// ErrProcessGone: Open ended a session that was bound to a process that ended without Close.
	ErrProcessGone = engine.ErrProcessGone

	// ErrRestored: a backup was restored over the database.
	ErrRestored = engine.ErrRestored

	// ErrUnlocked: a lock was released, by Unlock or Txn.Unlock.
	ErrUnlocked = engine.ErrUnlocked

	// ErrKeyDeleted: the key of a lock was deleted.
	ErrKeyDeleted = engine.ErrKeyDeleted

	// ErrForced: ForceUnlock took a lock away. The text has the reason.
	ErrForced = engine.ErrForced

	// ErrHeldTooLong: a lock was held for LockOptions.MaxHold, which the text has.
	ErrHeldTooLong = engine.ErrHeldTooLong
)

// Error is the error of a call; the package comment, under Calls, names the exceptions.
type Error struct {
	Op  string // such as "put" or "lock"; empty for DB.Err
	Key string // the key, keys, prefix or session; empty if there is none
	Err error
}

// Error returns the text.
func (e *Error) Error() string {
	ended, _ := e.Err.(*EndedError)
	if e.Op == "" {
		return "lockd: " + causeText(e.Err)
	}
	if e.Key == "" || ended != nil && (ended.Key == e.Key || ended.Session.String() == e.Key) {
		return "lockd: " + e.Op + ": " + causeText(e.Err)
	}
	return fmt.Sprintf("lockd: %s %.100q: %s", e.Op, e.Key, causeText(e.Err))
}

// causeText returns the text of a cause. An Error or EndedError that a user's code made may have
// none.
func causeText(cause error) string {
	if cause == nil {
		return "no cause is known"
	}
	return cause.Error()
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// wrap returns err as an *Error, and nil for nil. An error that is wrapped already stays as it is.
func wrap(op, key string, err error) error {
	if wrapped, _ := err.(*Error); err == nil || wrapped != nil {
		return err
	}
	return &Error{Op: op, Key: key, Err: refusal(err)}
}

// joined is errors.Join, but returns an error as it is if there is no other.
func joined(err, other error) error {
	if err == nil || other == nil {
		return cmp.Or(err, other)
	}
	return errors.Join(err, other)
}

// refusal converts an error by which the rules refuse a call to the type that users know, and
// returns any other error as it is.
func refusal(err error) error {
	switch refusal := err.(type) {
	case *engine.Blocked:
		return lockedError(refusal)
	case *engine.Deadlock:
		return deadlockError(refusal)
	}
	return err
}

// invalid says which argument is wrong, and how.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// advised adds to the error of a damaged file what the user can do.
func advised(err error) error {
	if !errors.Is(err, ErrCorrupt) {
		return err
	}
	return fmt.Errorf("%w; the file is left as it is: restore a backup, have Recover, or the "+
		"command lockd recover, save what is whole in it, or remove it to begin anew", err)
}

// EndedError says that a session or a lock has ended, and why: errors.Is finds the cause. It is
// also ErrNoSession for a session, and ErrNotHeld for a lock, unless the database was closed and
// its file keeps the session.
type EndedError struct {
	Session SessionID // the session, or the session that held the lock
	Key     string    // of the lock; empty for a session
	Cause   error     // such as ErrExpired
}

// Error returns the text.
func (e *EndedError) Error() string {
	what, ended := "session "+e.Session.String(), " has ended: "
	if e.Key != "" {
		what, ended = "lock "+strconv.Quote(e.Key)+" of "+what, " is no longer held: "
	}
	if e.kept() {
		ended = " is kept in the file: "
	}
	return what + ended + causeText(e.Cause)
}

// kept reports whether only the handle has ended.
func (e *EndedError) kept() bool {
	_, kept := e.Cause.(*kept)
	return kept
}

// Unwrap returns the cause.
func (e *EndedError) Unwrap() error { return e.Cause }

// Is reports whether e is also target: ErrNoSession for a session, ErrNotHeld for a lock.
func (e *EndedError) Is(target error) bool {
	switch {
	case e.kept():
		return false
	case e.Key == "":
		return target == ErrNoSession
	}
	return target == ErrNotHeld
}

// Lost reports whether err, from Err, context.Cause or Unlock, says that a session, lock, slot or
// leadership was lost: that it ended with a cause other than ErrUnlocked and ErrClosed. For any
// other error it returns false.
func Lost(err error) bool {
	ended, ok := errors.AsType[*EndedError](err)
	return ok && !engine.Clean(ended.Cause)
}

// kept is the cause that ends the handles of a session, and of its locks, if the file keeps them.
type kept struct{ cause error }

func (k *kept) Error() string { return k.cause.Error() + "; Open goes on with it" }

func (k *kept) Unwrap() error { return k.cause }

// Obstacle is why a lock cannot be acquired.
type Obstacle uint8

// The obstacles.
const (
	// ObstacleHolder: a session holds the lock, maybe the caller's own, or sessions share it.
	ObstacleHolder Obstacle = iota + 1
	// ObstacleDelay: the lock-delay of a lost holder is not over (K18).
	ObstacleDelay
	// ObstacleQueue: the lock could be granted, but other calls have waited longer (G9, R3).
	ObstacleQueue
	// ObstacleSlots: every slot of the semaphore is held, or was lost and is delayed.
	ObstacleSlots
)

// String returns the obstacle in words.
func (o Obstacle) String() string {
	return name(o, "none", "held", "delayed", "promised to waiters", "all slots taken")
}

// LockedError says why a lock or a slot could not be acquired, at once or before the context ended.
// A call that gave up reports the first key whose lock it could not acquire, and at most 1,000
// Waiters.
//
// The fields from Holder to Held are set with ObstacleHolder and ObstacleSlots. With ObstacleSlots
// they describe the slot that has been held for longest; Until and Remaining then describe the
// first lost slot that comes back, and are zero if none was lost.
type LockedError struct {
	Key        string
	Mode       LockMode // the requested mode
	Obstacle   Obstacle
	Holders    []Holder      // all that share the lock; the first is Holder
	Holder     SessionID     // the holder, or the first of Holders
	HolderName string        // of the holder; empty if it has none
	Own        bool          // the holder, or one of Holders, is the session that asked
	Fence      uint64        // of the holder's grant
	Since      time.Time     // of that grant, as in a Holder
	Held       time.Duration // from Since to the refusal
	Waiters    int           // calls that would be served before the caller
	Until      time.Time     // with ObstacleDelay: the delay's end
	Remaining  time.Duration // with ObstacleDelay: from the refusal to Until
	Limit      int           // of the semaphore, if a slot was refused
}

// lockedError converts b to the type that users know.
func lockedError(b *engine.Blocked) *LockedError {
	return &LockedError{
		Key: b.Key, Mode: LockMode(b.Mode), Obstacle: Obstacle(b.Obstacle),
		Holders: holdersOf(b.Holders), Holder: SessionID(b.Holder),
		HolderName: b.HolderName, Own: b.Own, Fence: b.Fence, Since: b.Since, Held: b.Held,
		Waiters: b.Waiters, Until: b.Until, Remaining: b.Remaining, Limit: b.Limit,
	}
}

// Error returns the text.
func (e *LockedError) Error() string {
	var text strings.Builder
	switch e.Obstacle {
	case ObstacleDelay:
		fmt.Fprintf(&text, "delayed for another %v, until %s, because its last holder was lost",
			max(e.Remaining.Round(time.Millisecond), time.Millisecond),
			e.Until.Format("2006-01-02T15:04:05.000Z07:00"))
	case ObstacleQueue:
		text.WriteString("promised to those who wait for it")
	case ObstacleSlots:
		fmt.Fprintf(&text, "all slots are taken, the limit is %d", e.Limit)
		if !e.Holder.IsZero() {
			text.WriteString(", the longest by " + who(e.HolderName, e.Holder) + e.held())
		}
		if e.Remaining > 0 {
			fmt.Fprintf(&text, ", one that was lost is delayed for another %v",
				max(e.Remaining.Round(time.Millisecond), time.Millisecond))
		}
	default:
		if n := len(e.Holders); n > 1 {
			fmt.Fprintf(&text, "shared by %d holders, for longest by ", n)
		} else if n == 1 {
			text.WriteString("shared by ")
		} else {
			text.WriteString("held by ")
		}
		text.WriteString(who(e.HolderName, e.Holder))
		if e.Own && len(e.Holders) > 1 {
			text.WriteString(", one of them your own,")
		} else if e.Own {
			text.WriteString(", your own,")
		}
		text.WriteString(e.held())
	}
	if e.Waiters > 0 {
		fmt.Fprintf(&text, ", %d ahead of you", e.Waiters)
	}
	return text.String()
}

// held says for how long the lock has been held.
func (e *LockedError) held() string {
	if e.Since.IsZero() {
		return " since before the file was opened"
	}
	return " for " + engine.Span(e.Held)
}

// who names a session: by its name too, if it has one, or by the beginning of a long one.
func who(name string, id SessionID) string {
	if name == "" {
		return "session " + id.String()
	}
	return fmt.Sprintf("%.100q (session %s)", name, id)
}
