package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"syscall"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// The exit codes of lockd lock, which lockCodes explains: those of env and timeout, where these
// have one, so that few commands use the same.
const (
	exitLost        = 123
	exitNotAcquired = 124
	exitLockFailed  = 125
	exitNotStarted  = 126
	exitNoCommand   = 127
	exitSignal      = 128
)

// lockCodes is for the help.
const lockCodes = `Exit codes: that of CMD, and
   123    the lock was lost before CMD had ended
   124    the lock was not to be had, by --try or --timeout
   125    something else went wrong, the command line too
   126    CMD could not be started
   127    there is no CMD
   128+N  signal N ended CMD, or the wait for the lock`

// lockStatus is an error of lockd lock with its exit code.
type lockStatus struct {
	code int
	err  error // nil: the command has said itself what there is to say
}

// Error returns the text.
func (s *lockStatus) Error() string {
	if s.err == nil {
		return ""
	}
	return "lock: " + s.err.Error()
}

// Unwrap returns the cause.
func (s *lockStatus) Unwrap() error { return s.err }

// inLock gives an error of lockd lock its exit code.
func inLock(err error) error {
	if err == nil {
		return nil
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		status, ok := exit.Sys().(syscall.WaitStatus)
		if ok && status.Signaled() {
			return &lockStatus{exitSignal + int(status.Signal()), nil}
		}
		return &lockStatus{exit.ExitCode(), nil}
	}
	code := exitLockFailed
	signal, isSignal := errors.AsType[*signalled](err)
	lost, isLost := errors.AsType[*lostLock](err)
	_, isNotStarted := errors.AsType[*notStarted](err)
	switch {
	case isLost:
		code, err = exitLost, lost
	case isSignal:
		code = exitSignal + signal.number()
	case errors.Is(err, exec.ErrNotFound), isNotStarted && errors.Is(err, fs.ErrNotExist):
		code = exitNoCommand
	case isNotStarted, errors.Is(err, exec.ErrDot):
		code = exitNotStarted
	case errors.Is(err, lockclient.ErrNotAcquired):
		code = exitNotAcquired
	}
	return &lockStatus{code, err}
}

// signalled is returned when a signal ended the wait for the lock.
type signalled struct{ signal os.Signal }

// Error returns the text.
func (s *signalled) Error() string { return "ended by a signal: " + s.signal.String() }

// number returns the number of the signal, as the exit code has it.
func (s *signalled) number() int {
	if n, ok := s.signal.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}
