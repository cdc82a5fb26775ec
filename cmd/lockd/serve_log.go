package main

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"log"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
)

// logFlags say what a server logs, and how.
func logFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "log-level", Value: "info",
			Usage: "the lowest `LEVEL` to log: debug, info, warn or error"},
		&cli.StringFlag{Name: "log-format", Value: "text",
			Usage: "`FORMAT` of the log, on standard error: text or json"},
	}
}

// newLogger returns the logger that the flags ask for.
func newLogger(cmd *cli.Command, w io.Writer) (*slog.Logger, error) {
	opts := new(slog.HandlerOptions)
	var level slog.Level
	if err := level.UnmarshalText([]byte(cmd.String("log-level"))); err != nil {
		return nil, usage(cmd, "--log-level %q is none of debug, info, warn and error",
			cmd.String("log-level"))
	}
	opts.Level = level
	switch format := cmd.String("log-format"); format {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	default:
		return nil, usage(cmd, "--log-format %q is neither text nor json", format)
	}
}

// logPatience is how long the end of a server waits for the reader of its log.
const logPatience = time.Second

// logQueue hands the lines of the log to a goroutine that writes them. The log may be a pipe that
// is full because its reader hangs, and the end of the server must not wait for that reader.
type logQueue struct {
	lines  chan []byte   // nil is the end
	ending chan struct{} // closed when lines are dropped rather than waited for
	done   chan struct{} // closed when all lines are written
}

func newLogQueue() *logQueue {
	return &logQueue{make(chan []byte, 1024), make(chan struct{}), make(chan struct{})}
}

// Write queues a line. If the queue is full it waits, but not while the server ends.
func (q *logQueue) Write(line []byte) (int, error) {
	kept := bytes.Clone(line)
	select {
	case q.lines <- kept:
		return len(line), nil
	default:
	}
	select {
	case q.lines <- kept:
	case <-q.ending:
	}
	return len(line), nil
}

// begin begins to write the lines to w, until end is called. When ctx ends, the end has begun.
func (q *logQueue) begin(ctx context.Context, w io.Writer) (end func()) {
	go func() {
		defer close(q.done)
		for line := <-q.lines; line != nil; line = <-q.lines {
			_, _ = w.Write(line) // there is nowhere else to report it
		}
	}()
	stop := context.AfterFunc(ctx, func() { close(q.ending) })
	return func() {
		if stop() {
			close(q.ending)
		}
		patience, cancel := context.WithTimeout(context.Background(), logPatience)
		defer cancel()
		select {
		case q.lines <- nil:
		case <-patience.Done():
			return
		}
		select {
		case <-q.done:
		case <-patience.Done():
		}
	}
}

// logStart says what is served, and where. An empty path means no file.
func logStart(logger *slog.Logger, db *lockd.DB, path, address string) {
	file := cmp.Or(path, "none, in memory")
	if absolute, err := filepath.Abs(path); path != "" && err == nil {
		file = absolute
	}
	stats := db.Stats()
	logger.Info("serving", "version", version(), "file", file, "keys", stats.Keys,
		"sessions", stats.Sessions, "locks", stats.Locks, "address", address)
}

// logEnd says why the server ends, how long it has served, how many requests are ended with it, and
// what stays in the file.
func logEnd(
	logger *slog.Logger, db *lockd.DB, cause error, began time.Time, requests int64,
) {
	stats := db.Stats()
	logger.Info("ending", "cause", cause, "after", time.Since(began).Round(time.Millisecond),
		"requests_ended", requests, "sessions_left", stats.Sessions, "locks_left", stats.Locks)
}

// httpLog takes the lines that an http.Server logs.
type httpLog struct {
	logger     *slog.Logger
	handshakes refusals
}

func newHTTPLog(logger *slog.Logger) *log.Logger {
	return log.New(&httpLog{logger: logger}, "", 0)
}

// Write logs a line as a warning, or counts it if it tells of a handshake that failed.
func (l *httpLog) Write(line []byte) (int, error) {
	text := strings.TrimSuffix(string(line), "\n")
	last, isHandshake := strings.CutPrefix(text, "http: TLS handshake error from ")
	if !isHandshake {
		l.logger.Warn(text)
	} else if count := l.handshakes.due(); count > 0 {
		l.logger.Warn("connections refused: no TLS handshake", "count", count, "last_from", last)
	}
	return len(line), nil
}
