package main

import (
	"errors"
	"io/fs"

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

// codes has the exit codes of errors. The first error that fits counts.
var codes = []struct {
	err  error
	code int
}{
	{errUsage, exitUsage},
	{lockd.ErrInUse, exitInUse},
	{lockd.ErrCorrupt, exitDamaged},
	{lockd.ErrFormat, exitDamaged},
	{lockclient.ErrUnreachable, exitFailed}, // also if its socket does not exist
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
