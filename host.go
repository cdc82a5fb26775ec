package lockd

import (
	"log/slog"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/writer"
)

// host notifies the handles, the watchers and the logger of what the writer tells it.
type host struct{ db *DB }

var _ writer.Host = host{}

// Notify tells of what has become durable, in the order of G10: first the handles whose lock or
// session ended, then the watchers, then the calls that waited.
func (h host) Notify(o engine.Outcome) {
	db := h.db
	for i := range o.Effects {
		switch e := &o.Effects[i]; e.Kind {
		case engine.LockReleased:
			lockOf(e.Hold).lose(ErrUnlocked)
		case engine.LockDowngraded:
			lockOf(e.Hold).shared.Store(e.Next)
		case engine.LockLost:
			lockOf(e.Hold).lose(e.Cause)
		case engine.SessionEnded:
			handleOf(e.Session).ending.End(
				&EndedError{Session: SessionID(e.Session.Row.ID), Cause: e.Cause})
		}
	}
	if len(o.Events) > 0 {
		if db.hooks.Published != nil {
			db.hooks.Published()
		}
		db.logEvents(o.Events)
		db.hub.Publish(o.Events, o.Index)
	}
	for i := range o.Effects {
		switch e := &o.Effects[i]; e.Kind {
		case engine.WaiterServed, engine.WaiterLeft:
			db.settled(e.Waiter)
		case engine.HoldSlow, engine.WaitSlow:
			db.logSlow(e)
		}
	}
}

// settled wakes the call of a waiter whose outcome is final.
func (db *DB) settled(w *engine.Waiter) {
	db.writer.Wake(waiterOf(w).done)
	db.waitsMoved()
}

// slowCommit is how long a commit may take before it is logged.
const slowCommit = time.Second

// Committed logs a commit that failed, or took long.
func (h host) Committed(writers int64, took time.Duration, err error) {
	if err != nil {
		h.db.logNow(slog.LevelError, "commit failed", slog.Duration("took", took),
			slog.Uint64("writers", uint64(writers)), slog.String("error", err.Error()))
	} else if took >= slowCommit {
		h.db.logNow(slog.LevelWarn, "commit slow", slog.Duration("took", took),
			slog.Uint64("writers", uint64(writers)))
	}
}

func (h host) Failed(err error) {
	h.db.logNow(slog.LevelError, "database failed", slog.String("error", err.Error()))
	h.db.logger.Stop()
	h.db.endAll(err)
}

// StepFailed logs the error. If the disk is full, commits still succeed while the log has room, so
// no caller hears of the full disk before that room is used up.
func (h host) StepFailed(err error) {
	h.db.logNow(slog.LevelWarn, "checkpoint failed", slog.String("error", err.Error()))
}
