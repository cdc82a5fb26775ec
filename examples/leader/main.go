// Leader shows how the leader of service/mysql/leader is elected, lost, fenced off and replaced,
// and what remains when its process is killed.
//
// The program works on a file in a new folder, which it makes in the working directory and removes
// at the end. Every line that it prints is computed from what a call returned. If anything is not
// as lockd promises, the program says what, and its exit status is 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/lockd/lockd"
)

const (
	leaderKey  = "service/mysql/leader"  // whose lock makes a leader
	primaryKey = "service/mysql/primary" // what only the leader writes
	backupKey  = "service/mysql/backup"  // the lock of a session that outlives its process
	countKey   = "service/mysql/count"   // what is written until the process is killed
)

// longest is when the program gives up, whatever it waits for.
const longest = 10 * time.Second

func main() {
	ttl := flag.Duration("ttl", time.Second, "the TTL of the sessions, and their lock-delay")
	child := flag.String("child", "", "the file of a `process` to be killed; not for people")
	flag.Parse()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the story tells what lockd would log
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, longest)
	var err error
	if *child != "" {
		err = live(ctx, *child, *ttl)
	} else {
		err = tell(ctx, *ttl)
	}
	cancel()
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "leader: not as promised: %v\n", err)
		os.Exit(1)
	}
}

// tell tells the story in a folder of its own.
func tell(ctx context.Context, ttl time.Duration) (err error) {
	dir, err := os.MkdirTemp(".", "leader-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &story{path: filepath.Join(dir, "lockd.db"), ttl: ttl, began: time.Now()}
	if s.db, err = lockd.Open(s.path, nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.db.Close()) }()
	s.say("opened %s at index %d", s.path, s.db.Snapshot().Index())

	lost, next, err := s.elect(ctx)
	if err != nil {
		return err
	}
	if err := s.fence(ctx, lost, next); err != nil {
		return err
	}
	return s.restart(ctx)
}

// story is what the parts of the story share.
type story struct {
	path    string
	ttl     time.Duration // of every session, and its lock-delay
	began   time.Time
	db      *lockd.DB
	workers []*worker
	journal journal
	highest uint64 // the fence of the last leader
}

// say prints a line, with the time since the beginning.
func (s *story) say(format string, args ...any) {
	fmt.Printf("%5.2fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// refused prints the error of a call that has to be refused. It returns an error if the call was
// not refused, or for another reason.
func (s *story) refused(what string, err, reason error) error {
	if err == nil {
		return fmt.Errorf("%s, and it is not refused", what)
	}
	if !errors.Is(err, reason) {
		return fmt.Errorf("%s, and the error is %w, not %q", what, err, reason)
	}
	s.say("%s\n        → %v", what, err)
	return nil
}

// risen returns an error unless the fence is above all fences seen before.
func (s *story) risen(q lockd.Sequencer) error {
	if q.Fence <= s.highest {
		return fmt.Errorf("fence %d came after fence %d", q.Fence, s.highest)
	}
	s.highest = q.Fence
	return nil
}

func ms(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
