package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// The exit codes, which the package comment and exitCodes explain.
const (
	exitFailed   = 1
	exitUsage    = 2
	exitNotFound = 3
	exitInUse    = 4
	exitDamaged  = 5
	exitConflict = 6
)

// exitCodes is for the help.
const exitCodes = `Exit codes:
   0  it is done
   1  it is not: the error, on standard error, says why
   2  the command line is wrong
   3  there is no such file, key or session
   4  the file is in use by a process that has it open
   5  the file, or the backup, is damaged, not lockd's, or of a newer format
   6  the key does not have the index that the write was to find

lockd lock has codes of its own: see lockd lock --help.`

// codes has the exit codes of errors. The first that fits counts.
var codes = []struct {
	err  error
	code int
}{
	{errUsage, exitUsage},
	{lockd.ErrInUse, exitInUse},
	{lockd.ErrCorrupt, exitDamaged},
	{lockd.ErrFormat, exitDamaged},
	{lockclient.ErrUnreachable, exitFailed}, // also if it is its socket that is not there
	{fs.ErrNotExist, exitNotFound},
	{errNotFound, exitNotFound},
	{errConflict, exitConflict},
}

// exitCode returns the exit code for what a command returned.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if s, ok := errors.AsType[*lockStatus](err); ok {
		return s.code
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return exitFailed
}

var (
	// errUsage is returned when the command line is wrong.
	errUsage = errors.New("wrong command line")

	// errNotFound is returned when the server does not have what was asked for.
	errNotFound = errors.New("not found")

	// errConflict is returned when a write was not done because of what it was to find.
	errConflict = errors.New("conflict")
)

// usage returns an error that is errUsage, with a text, and says whose help to look at.
func usage(cmd *cli.Command, format string, args ...any) error {
	return &usageError{fmt.Errorf(format, args...), cmd.FullName()}
}

// usageError is what is wrong with the command line of one command.
type usageError struct {
	err     error
	command string
}

// Error returns the text.
func (e *usageError) Error() string { return e.err.Error() + "; see " + e.command + " --help" }

// Is reports whether the target is errUsage.
func (e *usageError) Is(target error) bool { return target == errUsage }

// Unwrap returns the cause.
func (e *usageError) Unwrap() error { return e.err }
