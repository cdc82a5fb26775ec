package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
)

// onFile is the category of the commands on the file of a closed database.
const onFile = "on the file of a closed database"

// writable is for the help of the commands that only read a file.
const writable = "FILE has to be writable, and not on a read-only file system, as that is how\n" +
	"it is locked; copy one that is not, and name the copy."

// leftover is for the help of the commands that make a file of a database.
const leftover = "A signal in the middle may leave a part of the new file in its folder, as\n" +
	".lockd-….new. It can be removed."

// waitFlag is the flag --wait of the commands that open a file.
func waitFlag() cli.Flag {
	return &cli.DurationFlag{Name: "wait", Value: time.Second,
		Usage: "how long to wait for a file that is in use"}
}

// openOptions returns options with the time of the waitFlag.
func openOptions(cmd *cli.Command) (*lockd.Options, error) {
	wait := cmd.Duration("wait")
	if wait < 0 {
		return nil, usage(cmd, "--wait %v is below 0", wait)
	}
	if wait == 0 { // which would be the default
		wait = lockd.NoWait
	}
	return &lockd.Options{OpenTimeout: wait}, nil
}

// withFile returns an action that calls a function that opens a file, with the options for that.
func withFile(
	least, most int,
	fn func(ctx context.Context, cmd *cli.Command, args []string, opts *lockd.Options) error,
) cli.ActionFunc {
	return func(ctx context.Context, cmd *cli.Command) error {
		args, err := paths(cmd, least, most)
		if err != nil {
			return err
		}
		opts, err := openOptions(cmd)
		if err != nil {
			return err
		}
		return fn(ctx, cmd, args, opts)
	}
}

// advisedOnFile adds to the error of a command that opens a file what the command line can do about
// it.
func advisedOnFile(err error) error {
	if errors.Is(err, lockd.ErrInUse) {
		return &inUse{err, "end that process, or wait for longer with --wait; if it is a lockd " +
			"serve, use that: lockd kv, lockd locks, lockd backup"}
	}
	return err
}

// inUse is lockd.ErrInUse with advice for a person at a shell, in place of the advice for a
// program.
type inUse struct {
	err    error
	advice string
}

// Error returns the text: the file, the process that has it open, and what to do.
func (e *inUse) Error() string {
	text := e.err.Error()
	reason := max(0, strings.LastIndex(text, lockd.ErrInUse.Error())) // behind the path
	if advice := strings.LastIndex(text[reason:], "; "); advice >= 0 {
		text = text[:reason+advice]
	}
	return text + "; " + e.advice
}

// Unwrap returns the library's error.
func (e *inUse) Unwrap() error { return e.err }

// advisedReading is advisedOnFile for a read-only command: it adds why FILE has to be writable.
func advisedReading(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w; it has to be writable too, though nothing is written to it: that "+
			"is how it is locked; if no program has it open, copy it and name the copy", err)
	}
	return advisedOnFile(err)
}

// cause takes the path off an error of package os, for texts that have a path already.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}
