// Package logger hands records to the user's handler, which may take its time, and logs an Update
// that runs for too long. It knows nothing else of what is logged.
package logger

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd/internal/expiry"
)

const (
	queueSize  = 4096              // records that may wait for the handler
	debugQueue = queueSize * 3 / 4 // when this many wait, records of Debug are dropped
	slowUpdate = time.Second       // how long the function of an Update may run before it is logged
)

// Config is what a Logger is made of.
type Config struct {
	Handler slog.Handler     // gets the records, on a goroutine of the Logger's
	Least   slog.Level       // records below it are not made
	Clock   clock.Clock      // for the alarm
	Time    func() time.Time // reads the clock
}

// Logger queues records for a handler. Its methods may be called by many goroutines; all but Close
// return at once. A nil one is silent. New gives one; the zero value is not usable.
type Logger struct {
	Config
	dropped  atomic.Uint64
	reported uint64      // how many drops have been logged; only the goroutine uses it
	debug    atomic.Bool // the handler wants records of Debug, as it said last
	alarm    chan struct{}

	// mu protects what follows. No other mutex is locked under it. The first record, or Update,
	// makes the queue, which takes a megabyte, and begins the goroutine.
	mu     sync.Mutex
	queue  chan slog.Record // nil until it is made; no sender waits for it
	done   chan struct{}    // closed when all of the queue is logged
	closed bool
	update update
}

// update is an Update whose function runs.
type update struct {
	runs     bool
	logged   bool
	began    time.Time
	function uintptr       // its entry
	alarm    *expiry.Alarm // rings when it is slow
}

// New returns a logger, and nil for a handler that discards everything.
func New(config Config) *Logger {
	if config.Handler == slog.DiscardHandler {
		return nil
	}
	l := &Logger{Config: config, alarm: make(chan struct{}, 1)}
	l.debug.Store(config.Handler.Enabled(context.Background(), slog.LevelDebug))
	l.update.alarm = expiry.NewAlarm(config.Clock, func() {
		select {
		case l.alarm <- struct{}{}:
		default: // it rings already
		}
	})
	return l
}

// Takes reports whether records of the level are made.
func (l *Logger) Takes(level slog.Level) bool { return l != nil && level >= l.Least }

// Add queues a record of what happened at that time, or drops it.
func (l *Logger) Add(at time.Time, level slog.Level, message string, attrs ...slog.Attr) {
	if !l.Takes(level) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.begin()
	if level == slog.LevelDebug && len(l.queue) >= debugQueue {
		if l.debug.Load() { // else the handler would have refused it
			l.dropped.Add(1)
		}
		return
	}
	record := slog.NewRecord(at.Round(0), level, message, 0)
	record.AddAttrs(attrs...)
	select {
	case l.queue <- record:
	default:
		l.dropped.Add(1)
	}
}

// Drops returns how many records were dropped.
func (l *Logger) Drops() uint64 {
	if l == nil {
		return 0
	}
	return l.dropped.Load()
}

// UpdateBegins notes that the function of an Update, which is at that entry, runs from now on. The
// stack of the Update would tell more, but taking it costs more than a small Update does.
func (l *Logger) UpdateBegins(now time.Time, function uintptr) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin()
	u := &l.update
	u.runs, u.logged, u.began, u.function = true, false, now, function
	u.alarm.Arm(now, now.Add(slowUpdate))
}

// UpdateEnds notes that the function has returned. The alarm stands: stopping it costs more.
func (l *Logger) UpdateEnds() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.update.runs = false
}

// slow returns the record of an Update that runs for too long, once. It reports false if there is
// none.
func (l *Logger) slow() (slog.Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := &l.update
	if !u.runs || u.logged {
		return slog.Record{}, false
	}
	now, due := l.Time(), u.began.Add(slowUpdate)
	if now.Before(due) {
		u.alarm.Arm(now, due)
		return slog.Record{}, false
	}
	u.logged = true
	record := slog.NewRecord(now.Round(0), slog.LevelWarn, "update slow", 0)
	record.AddAttrs(slog.Duration("took", now.Sub(u.began)),
		slog.String("function", describe(u.function)))
	return record, true
}

// describe returns the name of the function at the entry, and the line where it begins. A method
// that is passed as a function has its name alone: the compiler's wrapper of it is in no file.
func describe(entry uintptr) string {
	f := runtime.FuncForPC(entry)
	if method, wrapped := strings.CutSuffix(f.Name(), "-fm"); wrapped {
		return method
	}
	file, line := f.FileLine(entry)
	return fmt.Sprintf("%s at %s:%d", f.Name(), file, line)
}

// begin starts the goroutine, unless it runs already. The caller holds mu.
func (l *Logger) begin() {
	if l.queue == nil {
		l.queue, l.done = make(chan slog.Record, queueSize), make(chan struct{})
		go l.run(l.queue, l.done)
	}
}

// run logs records until the queue is closed, and Updates that are slow.
func (l *Logger) run(queue <-chan slog.Record, done chan<- struct{}) {
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

// handle gives the record to the handler, and then logs how many records were dropped, if any.
func (l *Logger) handle(record slog.Record) {
	ctx := context.Background()
	wanted := l.Handler.Enabled(ctx, record.Level)
	if record.Level == slog.LevelDebug {
		l.debug.Store(wanted)
	}
	if wanted {
		_ = l.Handler.Handle(ctx, record) // there is nowhere else to report it
	}
	dropped := l.dropped.Load()
	if dropped == l.reported || !l.Handler.Enabled(ctx, slog.LevelWarn) {
		return
	}
	notice := slog.NewRecord(record.Time, slog.LevelWarn, "log records dropped", 0)
	notice.AddAttrs(slog.Uint64("count", dropped-l.reported))
	_ = l.Handler.Handle(ctx, notice)
	l.reported = dropped
}

// Stop stops the timer: no Update is found to be slow any more.
func (l *Logger) Stop() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.update.alarm.Stop()
}

// Close takes no more records, stops the timer, and returns when all queued records are logged.
func (l *Logger) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.closed = true
	l.update.alarm.Stop()
	queue, done := l.queue, l.done
	l.mu.Unlock()
	if queue != nil {
		close(queue)
		<-done
	}
}
