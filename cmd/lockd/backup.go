package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
)

// standard is the argument that stands for standard input or output.
const standard = "-"

func backupCommand() *cli.Command {
	return &cli.Command{
		Name:      "backup",
		Category:  onFile,
		Usage:     "write a backup of a file",
		ArgsUsage: "FILE [TO]",
		Description: "It has the keys with their values and flags, and the catalog;\n" +
			"no sessions, locks or delays. The file stays as it is.\n" +
			"Without TO, or with -, it goes to standard output.\n" +
			"A TO that exists is replaced when the backup is whole and on disk.",
		Action: func(_ context.Context, cmd *cli.Command) error {
			args, err := operands(cmd, 1, 2)
			if err != nil {
				return err
			}
			write := func(w io.Writer) error { return lockd.BackupFile(args[0], w, nil) }
			if len(args) == 1 || args[1] == standard {
				return write(cmd.Root().Writer)
			}
			return replace(args[1], write)
		},
	}
}

// replace makes a file, readable by its owner only, of what write writes. What was at the path is
// there until the new file is on disk.
func replace(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".lockd-*.new")
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder has the names in the folder on disk, where the system can do so.
func syncFolder(folder string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	err = f.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		err = nil
	}
	return errors.Join(err, f.Close())
}
