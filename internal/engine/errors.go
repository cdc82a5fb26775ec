package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockd/lockd/store"
)

// Refusals and causes. Packages lockd and catalog document them: they have them under the same
// names.
var (
	// ErrClosed is that of package lockd.
	ErrClosed = errors.New("closed by its owner")
	// ErrConflict is that of package lockd.
	ErrConflict = errors.New("conflict")
	// ErrNotHeld is that of package lockd.
	ErrNotHeld = errors.New("lock is not held")
	// ErrNoSession is that of package lockd.
	ErrNoSession = errors.New("no such session")
	// ErrNoNode is that of package catalog.
	ErrNoNode = errors.New("no such node")
	// ErrNoService is that of package catalog.
	ErrNoService = errors.New("no such service")
	// ErrNoCheck is that of package catalog.
	ErrNoCheck = errors.New("no such check")
	// ErrExpired is that of package lockd.
	ErrExpired = errors.New("session expired: not renewed within its TTL")
	// ErrDestroyed is that of package lockd.
	ErrDestroyed = errors.New("session destroyed")
	// ErrNodeGone is that of package catalog.
	ErrNodeGone = errors.New("node of the session removed")
	// ErrCheckGone is that of package catalog.
	ErrCheckGone = errors.New("check of the session removed")
	// ErrCheckCritical is that of package catalog.
	ErrCheckCritical = errors.New("check of the session is critical")
	// ErrProcessGone is that of package lockd.
	ErrProcessGone = errors.New("process of the session is gone")
	// ErrRestored is that of package lockd.
	ErrRestored = errors.New("database restored from a backup")
	// ErrUnlocked is that of package lockd.
	ErrUnlocked = errors.New("lock released")
	// ErrKeyDeleted is that of package lockd.
	ErrKeyDeleted = errors.New("key deleted")
	// ErrForced is that of package lockd.
	ErrForced = errors.New("unlocked by force")

	// ErrHeldTooLong is that of package lockd.
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
func missing(sentinel error, name string) error { return fmt.Errorf("%w: %q", sentinel, name) }

// lapse is ErrExpired with what is known of the renewals.
type lapse struct{ ago time.Duration }

func (l *lapse) Error() string {
	return ErrExpired.Error() + ": last renewal " + Span(l.ago) + " ago"
}

func (l *lapse) Unwrap() error { return ErrExpired }

// Span writes a duration as exactly as people want it.
func Span(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}
