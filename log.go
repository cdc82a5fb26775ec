package lockd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/expiry"
	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/internal/writer"
)

const (
	logQueue   = 4096             // records that may wait for Options.Logger
	debugQueue = logQueue * 3 / 4 // so many wait when those of Debug are dropped
	slowCommit = time.Second
	slowUpdate = time.Second // how long the function of an Update may run before that is logged
)

// logger hands records to Options.Logger, on its own goroutine: it is code of the user's, which may
// take its time. A nil one is silent.
type logger struct {
	handler slog.Handler
	least   slog.Level // what is below is not even made
	dropped atomic.Uint64
	told    uint64      // how many of them a record has told of; the goroutine's
	debug   atomic.Bool // the handler wanted the last record of Debug that it was asked about

	// What follows is protected by the writer's mutex. The
	// first record, or Update, makes the queue, which takes
	// a megabyte, and begins the goroutine.
	queue  chan slog.Record // nil if there was none; never waited for by those who send
	done   chan struct{}    // closed when all of the queue is logged
	closed bool
	update runningUpdate

	alarm chan struct{}              // an Update may have become slow
	slow  func() (slog.Record, bool) // what to log of it
}

// newLogger returns the logger of the options. If they name none, each lock that comes and goes
// need not pay for the default logger, which as a rule does not take Debug.
func newLogger(opts *Options) *logger {
	chosen := opts.logger()
	l := &logger{handler: cmp.Or(chosen, slog.Default()).Handler(), least: slog.LevelDebug}
	if l.handler == slog.DiscardHandler {
		return nil
	}
	if chosen == nil && !l.handler.Enabled(context.Background(), slog.LevelDebug) {
		l.least = slog.LevelInfo
	}
	return l
}

// takes reports whether records of the level are made.
func (l *logger) takes(level slog.Level) bool { return l != nil && level >= l.least }

// runningUpdate is an Update whose function runs.
type runningUpdate struct {
	runs    bool
	logged  bool
	began   time.Time
	callers [24]uintptr
	alarm   *expiry.Alarm // rings when it is slow
}

// start has the logger look at the Updates of the database.
func (l *logger) start(db *DB) {
	if l == nil {
		return
	}
	l.slow = db.slowUpdate
	l.alarm = make(chan struct{}, 1)
	l.update.alarm = expiry.NewAlarm(db.clock, func() {
		select {
		case l.alarm <- struct{}{}:
		default: // it will be looked at
		}
	})
}

// updateBegins notes that the function of an Update runs from now on.
func (l *logger) updateBegins(now time.Time) {
	if l == nil {
		return
	}
	l.beginLocked()
	runtime.Callers(1, l.update.callers[:])
	l.update.runs, l.update.logged, l.update.began = true, false, now
	l.update.alarm.Arm(now, now.Add(slowUpdate))
}

// updateEnds notes that it does not run any more. The alarm stands: it costs less than to stop it.
func (l *logger) updateEnds() {
	if l != nil {
		l.update.runs = false
	}
}

// slowUpdate returns what to log of a function that runs for too long, once. It reports false if
// there is none.
func (db *DB) slowUpdate() (slog.Record, bool) {
	db.writer.LockBeside()
	defer db.writer.Unlock()
	u := &db.watch.logger.update
	if !u.runs || u.logged {
		return slog.Record{}, false
	}
	now, due := db.writer.Time(), u.began.Add(slowUpdate)
	if now.Before(due) {
		u.alarm.Arm(now, due)
		return slog.Record{}, false
	}
	u.logged = true
	_, site := writer.CallOf(u.callers[:])
	record := slog.NewRecord(now.Round(0), slog.LevelWarn, "update slow", 0)
	record.AddAttrs(slog.Duration("took", now.Sub(u.began)), slog.String("caller", site))
	return record, true
}

// beginLocked begins the goroutine, unless that is done.
func (l *logger) beginLocked() {
	if l.queue == nil {
		l.queue, l.done = make(chan slog.Record, logQueue), make(chan struct{})
		go l.run(l.queue, l.done)
	}
}

// stopLocked stops the timer.
func (l *logger) stopLocked() {
	if l != nil {
		l.update.alarm.Stop()
	}
}

// run logs what comes, until the queue is closed, and Updates that are slow.
func (l *logger) run(queue <-chan slog.Record, done chan<- struct{}) {
	defer close(done)
	for {
		select {
		case record, open := <-queue:
			if !open {
				return
			}
			l.handle(record)
		case <-l.alarm:
			if record, slow := l.slow(); slow {
				l.handle(record)
			}
		}
	}
}

// handle gives the record to the user's handler, and tells it of those that were dropped.
func (l *logger) handle(record slog.Record) {
	ctx := context.Background()
	wanted := l.handler.Enabled(ctx, record.Level)
	if record.Level == slog.LevelDebug {
		l.debug.Store(wanted)
	}
	if wanted {
		_ = l.handler.Handle(ctx, record) // there is nobody else to tell
	}
	dropped := l.dropped.Load()
	if dropped == l.told || !l.handler.Enabled(ctx, slog.LevelWarn) {
		return
	}
	notice := slog.NewRecord(record.Time, slog.LevelWarn, "log records dropped", 0)
	notice.AddAttrs(slog.Uint64("count", dropped-l.told))
	_ = l.handler.Handle(ctx, notice)
	l.told = dropped
}

// addLocked queues a record, or drops it.
func (l *logger) addLocked(
	at time.Time, level slog.Level, message string, attrs ...slog.Attr,
) {
	if l.closed {
		return
	}
	l.beginLocked()
	if level == slog.LevelDebug && len(l.queue) >= debugQueue {
		if l.debug.Load() { // else nobody misses it
			l.dropped.Add(1)
		}
		return
	}
	record := slog.NewRecord(at, level, message, 0)
	record.AddAttrs(attrs...)
	select {
	case l.queue <- record:
	default:
		l.dropped.Add(1)
	}
}

// drops is how many records were dropped.
func (l *logger) drops() uint64 {
	if l == nil {
		return 0
	}
	return l.dropped.Load()
}

// close returns when all that was queued is logged.
func (l *logger) close(w *writer.Writer) {
	if l == nil {
		return
	}
	w.Lock()
	l.closed = true
	queue, done := l.queue, l.done
	w.Unlock()
	if queue != nil {
		close(queue)
		<-done
	}
}

// logNow logs something that happens now. The caller holds the writer's mutex.
func (db *DB) logNow(level slog.Level, message string, attrs ...slog.Attr) {
	db.watch.logger.addLocked(db.writer.Time().Round(0), level, message, attrs...)
}

// logEvents logs what has become durable.
func (db *DB) logEvents(events []engine.Event) {
	if db.watch.logger == nil || !db.watch.logger.takes(slog.LevelDebug) && !notable(events) {
		return
	}
	var ended map[string]*schema.Session // they are no longer in the tables
	for i := range events {
		if row, _ := events[i].Body.Old.(*schema.Session); row != nil {
			if ended == nil {
				ended = make(map[string]*schema.Session)
			}
			ended[events[i].Name] = row
		}
	}
	for i := range events {
		switch event := &events[i]; event.Space {
		case engine.SpaceKeys:
			lost, granted := db.transitions(event)
			db.logTransition(lost, ended)
			db.logTransition(granted, ended)
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

func (db *DB) logTransition(t Transition, ended map[string]*schema.Session) {
	level, message := slog.LevelDebug, "lock granted"
	switch {
	case t.Change == LockUnchanged:
		return
	case t.Change == LockGranted:
	case engine.Clean(t.Cause):
		message = "lock released"
	default:
		level, message = slog.LevelWarn, "lock lost"
	}
	if !db.watch.logger.takes(level) {
		return
	}
	if row := ended[string(t.Session[:])]; row != nil {
		t.Name = row.Name
	} else if s := db.engine.Known(schema.ID(t.Session)); s != nil {
		t.Name = s.Row.Name // a grant has it, but the end of one has not
	}
	attrs := []slog.Attr{
		slog.Uint64("index", t.Index), slog.String("key", t.Key), slog.Uint64("fence", t.Fence),
	}
	attrs = append(attrs, sessionAttrs(t.Session, t.Name)...)
	db.watch.logger.addLocked(t.Time, level, message, append(attrs, causeAttrs(t.Cause)...)...)
}

func (db *DB) logSession(event *engine.Event) {
	r := &event.Body
	level, message, row := slog.LevelDebug, "session created", r.New.(*schema.Session)
	if r.Kind == engine.SessionGone {
		message, row = "session ended", r.Old.(*schema.Session)
		switch {
		case engine.Clean(r.Cause):
		case errors.Is(r.Cause, ErrDestroyed): // which is how clients of an API end theirs
			level = slog.LevelInfo
		default:
			level = slog.LevelWarn
		}
	}
	if !db.watch.logger.takes(level) {
		return
	}
	attrs := []slog.Attr{slog.Uint64("index", event.Index), slog.String("node", row.Node)}
	attrs = append(attrs, sessionAttrs(SessionID(row.ID), row.Name)...)
	at := db.engine.Instant(r.Moment).Round(0)
	db.watch.logger.addLocked(at, level, message, append(attrs, causeAttrs(r.Cause)...)...)
}

func sessionAttrs(id SessionID, name string) []slog.Attr {
	attrs := []slog.Attr{slog.String("session", id.String())}
	if name != "" {
		attrs = append(attrs, slog.String("name", name))
	}
	return attrs
}

func causeAttrs(cause error) []slog.Attr {
	if cause == nil {
		return nil
	}
	return []slog.Attr{slog.String("cause", cause.Error())}
}

// logCommit logs a commit that failed, or took long.
func (db *DB) logCommit(took time.Duration, writers uint64, err error) {
	if db.watch.logger == nil || err == nil && took < slowCommit {
		return
	}
	attrs := []slog.Attr{slog.Duration("took", took), slog.Uint64("writers", writers)}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
		db.logNow(slog.LevelError, "commit failed", attrs...)
		return
	}
	db.logNow(slog.LevelWarn, "commit slow", attrs...)
}

// logStep logs that a step of a checkpoint has failed. What was committed is durable. If there was
// no room, further commits succeed while the log has some, and nobody else is told before that.
func (db *DB) logStep(err error) {
	if db.watch.logger == nil || err == nil {
		return
	}
	db.writer.Lock()
	defer db.writer.Unlock()
	db.logNow(slog.LevelWarn, "checkpoint failed", slog.String("error", err.Error()))
}

// logPanic logs that the function of a leader has panicked: its caller hears of it only when Lead
// returns.
func (db *DB) logPanic(lock *Lock, p *PanicError) {
	if db.watch.logger == nil {
		return
	}
	row := lock.hold.Session.Row
	attrs := []slog.Attr{slog.String("key", lock.Key()), slog.Uint64("fence", lock.hold.Fence)}
	attrs = append(attrs, sessionAttrs(SessionID(row.ID), row.Name)...)
	attrs = append(attrs,
		slog.String("panic", fmt.Sprint(p.Value)), slog.String("stack", string(p.Stack)))
	db.writer.Lock()
	defer db.writer.Unlock()
	db.logNow(slog.LevelError, "leader panicked", attrs...)
}

// logFailure logs that the database has failed.
func (db *DB) logFailure(err error) {
	if db.watch.logger != nil {
		db.logNow(slog.LevelError, "database failed",
			slog.String("error", err.Error()))
	}
}
