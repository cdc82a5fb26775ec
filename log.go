package lockd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/logger"
	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/internal/writer"
)

// newLogger returns the logger of the options. If they name none and the default logger does not
// take Debug, no Debug records are made, so grants and releases cost less.
func (db *DB) newLogger(opts *Options) *logger.Logger {
	chosen, least := opts.Logger, slog.LevelDebug
	handler := cmp.Or(chosen, slog.Default()).Handler()
	if chosen == nil && !handler.Enabled(context.Background(), slog.LevelDebug) {
		least = slog.LevelInfo
	}
	return logger.New(logger.Config{
		Handler: handler, Least: least, Clock: opts.Clock, Time: db.writer.Time,
	})
}

// logNow logs something that happens now.
func (db *DB) logNow(level slog.Level, message string, attrs ...slog.Attr) {
	if db.logger.Takes(level) {
		db.logger.Add(db.writer.Time(), level, message, attrs...)
	}
}

// logEvents logs what has become durable.
func (db *DB) logEvents(events []engine.Event) {
	if db.logger == nil || !db.logger.Takes(slog.LevelDebug) && !notable(events) {
		return
	}
	for i := range events {
		switch event := &events[i]; event.Space {
		case engine.SpaceKeys, engine.SpaceShares:
			db.logLock(event)
		case engine.SpaceSessions:
			db.logSession(event)
		}
	}
}

// notable reports whether one of the events is logged above Debug: as a loss, or as an end that the
// owner did not bring about.
func notable(events []engine.Event) bool {
	for i := range events {
		if cause := events[i].Body.Cause; cause != nil && !engine.Clean(cause) {
			return true
		}
	}
	return false
}

// logLock logs the end of a grant and the next one.
func (db *DB) logLock(event *engine.Event) {
	r := &event.Body
	if r.Former != nil {
		level, message := slog.LevelDebug, "lock released"
		if !engine.Clean(r.Cause) {
			level, message = slog.LevelWarn, "lock lost"
		}
		db.logGrant(level, message, event, r.Former, r.Old, causeAttrs(r.Cause))
	}
	if r.Holder != nil {
		db.logGrant(slog.LevelDebug, "lock granted", event, r.Holder, r.New, waitAttrs(r.Waited))
	}
}

// logGrant logs the beginning or the end of the grant in the row.
func (db *DB) logGrant(
	level slog.Level, message string, event *engine.Event, holder *schema.Session, row any,
	more []slog.Attr,
) {
	if !db.logger.Takes(level) {
		return
	}
	attrs := []slog.Attr{slog.Uint64("index", event.Index), slog.String("key", event.Name)}
	switch row := row.(type) {
	case *schema.Key:
		attrs = append(attrs, slog.Uint64("fence", row.Fence))
	case *schema.Share:
		attrs = append(attrs, slog.Uint64("fence", row.Fence()),
			slog.String("mode", Shared.String()))
	}
	attrs = append(attrs, sessionAttrs(holder)...)
	db.logger.Add(event.Body.Time, level, message, append(attrs, more...)...)
}

// logSlow logs that a lock is held, or that a call waits for one, for longer than Options.Slow.
func (db *DB) logSlow(f *engine.Effect) {
	if !db.logger.Takes(slog.LevelWarn) {
		return
	}
	s := f.Slow
	attrs := []slog.Attr{slog.String("key", s.Key), slog.String("mode", LockMode(s.Mode).String())}
	message, of := "lock awaited long", sessionAttrs(s.Session)
	if f.Kind == engine.HoldSlow {
		message = "lock held long"
		attrs = append(append(attrs, slog.Uint64("fence", s.Fence)), of...)
		attrs = append(attrs, slowHoldAttrs(s)...)
	} else {
		attrs = append(append(attrs, of...), slog.Duration("waited", s.Lasted))
		attrs = append(attrs, blockedAttrs(s.Blocked)...)
	}
	db.logger.Add(s.At, slog.LevelWarn, message, append(attrs, callerAttrs(f)...)...)
}

// slowHoldAttrs tell how long a lock has been held, if that is known, and who waits for it.
func slowHoldAttrs(s *engine.Slow) []slog.Attr {
	var attrs []slog.Attr
	if s.Lasted > 0 {
		attrs = append(attrs, slog.Duration("held", s.Lasted))
	}
	attrs = append(attrs, slog.Int("waiters", s.Waiters))
	if s.First != nil {
		attrs = append(attrs, slog.String("first", who(s.First.Name, SessionID(s.First.ID))))
	}
	return attrs
}

// blockedAttrs tell what is in the way of a call that waits. Of holders that share the lock they
// tell the number, and the one that has held it for longest.
func blockedAttrs(b *engine.Blocked) []slog.Attr {
	if b == nil {
		return nil
	}
	attrs := []slog.Attr{
		slog.String("obstacle", Obstacle(b.Obstacle).String()), slog.Int("ahead", b.Waiters),
	}
	if !b.Holder.IsZero() {
		attrs = append(attrs, slog.String("holder", who(b.HolderName, SessionID(b.Holder))),
			slog.Uint64("fence", b.Fence))
	}
	if b.Held > 0 {
		attrs = append(attrs, slog.Duration("held", b.Held))
	}
	if len(b.Holders) > 0 {
		attrs = append(attrs, slog.Int("holders", len(b.Holders)))
	}
	return attrs
}

// callerAttrs tell where the call was made that took the lock, or waits for it, if that was kept.
func callerAttrs(f *engine.Effect) []slog.Attr {
	var lock *Lock
	switch {
	case f.Waiter != nil:
		lock = &waiterOf(f.Waiter).lock
	case f.Hold != nil:
		lock = lockOf(f.Hold)
	default:
		return nil // a transaction took it
	}
	callers := lock.site.Callers()
	if len(callers) == 0 {
		return nil
	}
	_, site := writer.CallOf(callers)
	return []slog.Attr{slog.String("caller", site)}
}

func (db *DB) logSession(event *engine.Event) {
	r := &event.Body
	level, message, row := slog.LevelDebug, "session created", r.New.(*schema.Session)
	if r.Kind == engine.SessionGone {
		message, row = "session ended", r.Old.(*schema.Session)
		switch {
		case engine.Clean(r.Cause):
		case errors.Is(r.Cause, ErrDestroyed): // clients of an API end their sessions this way
			level = slog.LevelInfo
		default:
			level = slog.LevelWarn
		}
	}
	if !db.logger.Takes(level) {
		return
	}
	attrs := []slog.Attr{slog.Uint64("index", event.Index), slog.String("node", row.Node)}
	attrs = append(attrs, sessionAttrs(row)...)
	db.logger.Add(r.Time, level, message, append(attrs, causeAttrs(r.Cause)...)...)
}

func sessionAttrs(row *schema.Session) []slog.Attr {
	attrs := []slog.Attr{slog.String("session", row.ID.String())}
	if row.Name != "" {
		attrs = append(attrs, slog.String("name", row.Name))
	}
	return attrs
}

func causeAttrs(cause error) []slog.Attr {
	if cause == nil {
		return nil
	}
	return []slog.Attr{slog.String("cause", cause.Error())}
}

// waitAttrs tell how long a session waited for its grant, if it did.
func waitAttrs(waited time.Duration) []slog.Attr {
	if waited == 0 {
		return nil
	}
	return []slog.Attr{slog.Duration("waited", waited)}
}

// logPanic logs that the function of a leader has panicked: its caller hears of it only when Lead
// returns.
func (db *DB) logPanic(lock *Lock, reason any, stack []byte) {
	attrs := []slog.Attr{slog.String("key", lock.Key()), slog.Uint64("fence", lock.hold.Fence)}
	attrs = append(attrs, sessionAttrs(lock.hold.Session.Row)...)
	attrs = append(attrs,
		slog.String("panic", fmt.Sprint(reason)), slog.String("stack", string(stack)))
	db.logNow(slog.LevelError, "leader panicked", attrs...)
}
