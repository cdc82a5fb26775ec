package main

import (
	"errors"
	"fmt"
	"io/fs"
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

// waitFlag is of the commands that open a file.
func waitFlag() cli.Flag {
	return &cli.DurationFlag{Name: "wait", Value: time.Second,
		Usage: "how long to wait for a file that is in use"}
}

// openOptions returns options that have the time of the waitFlag.
func openOptions(cmd *cli.Command) (*lockd.Options, error) {
	wait := cmd.Duration("wait")
	if wait < 0 {
		return nil, usage(cmd, "--wait %v is below 0", wait)
	}
	return &lockd.Options{OpenTimeout: max(wait, time.Millisecond)}, nil // zero is the default
}

// advisedOnFile adds to the error of a command that opens a file what the command line can do about
// it.
func advisedOnFile(err error) error {
	if errors.Is(err, lockd.ErrInUse) {
		return fmt.Errorf("%w; --wait gives it more time", err)
	}
	return err
}

// advisedReading does so for a command that only reads a file: why that has to be writable.
func advisedReading(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w; it has to be writable too, though nothing is written to it: that "+
			"is how it is locked; if no program has it open, copy it and name the copy", err)
	}
	return advisedOnFile(err)
}
