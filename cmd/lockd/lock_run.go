package main

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// lostLock is returned when the lock was lost while the command ran.
type lostLock struct {
	cause   error
	command string // what became of it
}

// Error returns the text.
func (l *lostLock) Error() string {
	return fmt.Sprintf("the lock was lost, and the command %s: %v", l.command, l.cause)
}

// Unwrap returns why.
func (l *lostLock) Unwrap() error { return l.cause }

// lostBefore returns the error for a loss that was noticed when the command had ended.
func lostBefore(cause error) *lostLock { return &lostLock{cause, "has ended by itself"} }

// notStarted is returned when the command could not be started.
type notStarted struct{ cause error }

// Error returns the text.
func (n *notStarted) Error() string { return n.cause.Error() }

// Unwrap returns why.
func (n *notStarted) Unwrap() error { return n.cause }

// remnants is how long the rest of the group has to end by itself, after the command has.
const remnants = 2 * time.Second

// supervise runs the command in a group of its own, and passes signals on to the group. When the
// command has ended, supervise ends the rest of the group; when the lock is lost, the whole group.
// It returns when no process of the group is left, or the rest cannot be ended: nil, the command's
// *exec.ExitError or another error of waiting for it, a *lostLock, or a *notStarted.
func supervise(cmd *exec.Cmd, k *lockclient.Keeper, s *signals) error {
	if loss := k.Err(); loss != nil { // the answer to the request for the lock came late
		return &lostLock{loss, "was not started"}
	}
	g := newGroup(cmd)
	defer g.close()
	s.passOn()
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		// The thread that starts the command has to live as long as the command: on Linux the
		// command is killed when that thread ends.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return &notStarted{err}
	}
	g.begin()
	for {
		select {
		case one := <-s.ending:
			s.ended = true
			g.end(one)
		case one := <-s.others:
			g.signal(one)
		case <-s.children:
			g.reap()
		case <-k.Done():
			// outlast finds out whether the signal could be sent.
			g.terminate()
			if left := g.outlast(ended, k.Deadline(), nil); left != nil {
				return &lostLock{k.Err(), fmt.Sprintf("cannot be ended, and goes on without it: %v",
					left)}
			}
			return &lostLock{k.Err(), "was ended"}
		case err := <-ended:
			loss := k.Err()
			if g.alive() {
				g.terminate()
				left := g.outlast(nil, time.Now().Add(remnants), k.Done())
				if left != nil {
					complain(cmd.Stderr, "the rest of the command's group cannot be ended, and "+
						"goes on without the lock: %v", left)
				}
			}
			if loss != nil {
				return lostBefore(loss)
			}
			return exitOf(err)
		}
	}
}

// outlast waits until the group has ended, and kills it at the deadline, or at once when the lock
// is lost. ended receives the command's end, and is nil if the command has ended. lost is nil if
// the lock is lost already; then the deadline is the deadline of the loss. It returns why the group
// goes on, if it does: a process of it may run as another user.
func (g *group) outlast(
	ended <-chan error, deadline time.Time, lost <-chan struct{},
) (left error) {
	const look = 5 * time.Millisecond // nothing tells of the end of processes that are not ours
	for ended != nil || g.alive() {
		wait := look
		if ended != nil {
			wait = time.Until(deadline)
		}
		timer := time.NewTimer(max(0, wait))
		kill := false
		select {
		case <-ended:
			ended = nil
		case <-lost:
			kill = true
		case <-timer.C:
		}
		timer.Stop()
		now := time.Now()
		if kill || !now.Before(deadline) {
			if err := g.kill(); err != nil {
				return err
			}
			if ended != nil {
				<-ended
			}
			// The dead may stay in the group until their exit codes are collected.
			for end := now.Add(time.Second); g.alive(); time.Sleep(look) {
				if !time.Now().Before(end) {
					return errors.New("a process of its group is still there")
				}
			}
			return nil
		}
	}
	return nil
}

// exitOf returns nil, the command's *exec.ExitError, or any other error of waiting for it.
func exitOf(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok || err == nil {
		return err
	}
	return fmt.Errorf("wait for the command: %w", err)
}
