package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

// maxMinIndex is the largest index that lockd.Restore takes.
const maxMinIndex = 1 << 62

func restoreCommand() *cli.Command {
	return &cli.Command{
		Name:      "restore",
		Category:  onFile,
		Usage:     "make a new file of a backup",
		ArgsUsage: "FILE [FROM]",
		Description: "FILE must not exist: it is there when it is complete and on disk,\n" +
			"or not at all. Its indexes, and so its fences, are above those of the backup,\n" +
			"and above the Unix time in microseconds. No lock is held in it, or delayed.\n" +
			leftover + "\n" +
			"A snapshot, as GET /v1/snapshot and consul snapshot save give it, will do too.\n" +
			"Without FROM, or with -, the backup comes from standard input.",
		Flags: []cli.Flag{
			&cli.Uint64Flag{Name: "min-index", Usage: "an index that the new file's are above, " +
				"such as a `FENCE` that somebody may remember"},
		},
		Action: func(_ context.Context, cmd *cli.Command) error {
			args, err := paths(cmd, 1, 2)
			if err != nil {
				return err
			}
			if index := cmd.Uint64("min-index"); index > maxMinIndex {
				return usage(cmd, "--min-index %d is more than %d", index, uint64(maxMinIndex))
			}
			least := cmd.Uint64("min-index")
			if _, err := os.Lstat(args[0]); err == nil { // else Restore says so, after a long read
				return advisedOnTarget(fmt.Errorf("restore %q: %w", args[0], fs.ErrExist))
			}
			return readInput(cmd, args[1:], func(r io.Reader) error {
				err := restore(args[0], r, least)
				if errors.Is(err, lockd.ErrCorrupt) || errors.Is(err, lockd.ErrFormat) {
					from := "standard input"
					if len(args) == 2 && args[1] != standard {
						from = args[1]
					}
					return fmt.Errorf("%w; the backup comes from %s", err, from)
				}
				return advisedOnTarget(err)
			})
		},
	}
}

// restore makes a file of a backup or of a snapshot.
func restore(path string, r io.Reader, least uint64) error {
	backup, err := consulapi.ReadSnapshot(r)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return lockd.Restore(path, backup, least, nil)
}

// advisedOnTarget adds to the error of a file that exists what to do about it.
func advisedOnTarget(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w; it is not replaced: name a new FILE, or move that one away first",
			err)
	}
	return err
}
