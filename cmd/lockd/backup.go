package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
			writable + "\n" +
			"Without TO, or with -, it goes to standard output.\n" +
			"A TO that exists is replaced when the backup is whole and on disk, if it is a\n" +
			"backup or empty; anything else there, such as a database, is refused.\n" +
			"If FILE is in use, the server at --http-addr is asked for the backup. It gives\n" +
			"one if FILE is the very file that it has open; else nothing is written.",
		Flags: clientFlags(waitFlag()),
		Action: func(ctx context.Context, cmd *cli.Command) error {
			args, err := operands(cmd, 1, 2)
			if err != nil {
				return err
			}
			opts, err := openOptions(cmd)
			if err != nil {
				return err
			}
			write := func(w io.Writer) error {
				err := lockd.BackupFile(args[0], w, opts)
				if errors.Is(err, lockd.ErrInUse) { // then nothing is written yet
					return backupServed(ctx, cmd, args[0], w, err)
				}
				return advisedReading(err)
			}
			if len(args) == 1 || args[1] == standard {
				return write(cmd.Root().Writer)
			}
			if err := differ(cmd, args[0], args[1]); err != nil {
				return err
			}
			return replace(args[1], write)
		},
	}
}

// sameFile reports whether both paths lead to one file. There may be none at the second.
func sameFile(path, other string) (bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	there, err := os.Stat(other)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return os.SameFile(info, there), err
}

// replace makes a file, readable by its owner only, of the backup that write writes. What was at
// the path, or where a symbolic link there leads to, is there until the new file is on disk. It
// refuses to replace anything but a backup, and then changes nothing.
func replace(path string, write func(io.Writer) error) error {
	err := checkTarget(path)
	target := path
	if err == nil {
		target, err = targetOf(path)
	}
	if err != nil {
		return fmt.Errorf("backup: TO %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(target), ".lockd-*.new")
	if err != nil {
		return fmt.Errorf("backup: TO %s: no file can be made there: %w", path, cause(err))
	}
	to := &made{f, path}
	err = errors.Join(write(to), to.error(f.Sync()), to.error(f.Close()))
	if err == nil { // somebody may have made something there meanwhile
		err = to.error(checkTarget(target))
	}
	if err == nil {
		err = to.error(os.Rename(f.Name(), target))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return to.error(syncFolder(filepath.Dir(target)))
}

// targetOf follows the symbolic links at a path.
func targetOf(path string) (string, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	target, err := filepath.EvalSymlinks(path)
	return target, cause(err)
}

// backupBegins is how every backup does.
const backupBegins = "lockd backup"

// checkTarget refuses what a backup would not be expected to replace: a database may be in use, and
// whoever has it open would go on writing to a file without a name.
func checkTarget(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return cause(err)
	case !info.Mode().IsRegular():
		return errors.New("it is not a regular file, and is not replaced; name a file, or - for " +
			"standard output")
	case info.Size() == 0:
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return cause(err)
	}
	begin := make([]byte, len(backupBegins))
	n, err := io.ReadFull(f, begin)
	if err = errors.Join(err, f.Close()); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return cause(err)
	}
	if string(begin[:n]) != backupBegins {
		return errors.New("it is there and is not a backup, so it is not replaced; name another " +
			"file")
	}
	return nil
}

// made is the file that a backup is written to, under another name than the one that it will have.
type made struct {
	file *os.File
	path string
}

// Write writes to the file.
func (m *made) Write(p []byte) (int, error) {
	n, err := m.file.Write(p)
	return n, m.error(err)
}

// error returns an error that names the path that was asked for.
func (m *made) error(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write %s: %w", m.path, cause(err))
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
