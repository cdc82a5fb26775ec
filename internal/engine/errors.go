package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockd/lockd/store"
)

// Refusals and causes. Packages lockd and catalog document them, under the same names.
var (
	// ErrClosed is lockd.ErrClosed.
	ErrClosed = errors.New("closed by its owner")
	// ErrConflict is lockd.ErrConflict.
	ErrConflict = errors.New("conflict")
	// ErrNotHeld is lockd.ErrNotHeld.
	ErrNotHeld = errors.New("lock is not held")
	// ErrNoSession is lockd.ErrNoSession.
	ErrNoSession = errors.New("no such session")
	// ErrNoNode is catalog.ErrNoNode.
	ErrNoNode = errors.New("no such node")
	// ErrNoService is catalog.ErrNoService.
	ErrNoService = errors.New("no such service")
	// ErrNoCheck is catalog.ErrNoCheck.
	ErrNoCheck = errors.New("no such check")
	// ErrExpired is lockd.ErrExpired.
	ErrExpired = errors.New("session expired: not renewed within its TTL")
	// ErrDestroyed is lockd.ErrDestroyed.
	ErrDestroyed = errors.New("session destroyed")
	// ErrNodeGone is catalog.ErrNodeGone.
	ErrNodeGone = errors.New("node of the session removed")
	// ErrCheckGone is catalog.ErrCheckGone.
	ErrCheckGone = errors.New("check of the session removed")
	// ErrCheckCritical is catalog.ErrCheckCritical.
	ErrCheckCritical = errors.New("check of the session is critical")
	// ErrProcessGone is lockd.ErrProcessGone.
	ErrProcessGone = errors.New("process of the session is gone")
	// ErrRestored is lockd.ErrRestored.
	ErrRestored = errors.New("database restored from a backup")
	// ErrUnlocked is lockd.ErrUnlocked.
	ErrUnlocked = errors.New("lock released")
	// ErrKeyDeleted is lockd.ErrKeyDeleted.
	ErrKeyDeleted = errors.New("key deleted")
	// ErrForced is lockd.ErrForced.
	ErrForced = errors.New("unlocked by force")

	// ErrHeldTooLong is lockd.ErrHeldTooLong.
	ErrHeldTooLong = errors.New("held too long")

	errDowngraded = fmt.Errorf("%w: downgraded", ErrUnlocked)
)

// invalid says which argument is wrong, and how.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{store.ErrInvalid}, args...)...)
}

// conflict says which state was expected, and which one was found.
func conflict(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrConflict}, args...)...)
}

// missing says what is not there, or not as it should be.
func missing(sentinel error, name string) error {
	return fmt.Errorf("%w: %.100q", sentinel, name)
}

// lapse is ErrExpired with the time from the last renewal to the end: its text is read later too.
type lapse struct{ unrenewed time.Duration }

func (l *lapse) Error() string {
	return ErrExpired.Error() + ": last renewal " + Span(l.unrenewed) + " earlier"
}

func (l *lapse) Unwrap() error { return ErrExpired }

// Span formats a duration, rounded for people.
func Span(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
