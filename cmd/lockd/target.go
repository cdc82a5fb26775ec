package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/urfave/cli/v3"
)

// writeBackup calls write with standard output, or with a file that replaces the file at to. It
// refuses to replace the file that is backed up.
func writeBackup(cmd *cli.Command, file, to string, write func(io.Writer) error) error {
	if to == standard {
		return write(cmd.Root().Writer)
	}
	if err := differ(cmd, file, to); err != nil {
		return err
	}
	return replace(cmd.Name, to, write)
}

// differ returns an error if both paths lead to one file.
func differ(cmd *cli.Command, path, to string) error {
	switch same, err := sameFile(path, to); {
	case err != nil:
		return fmt.Errorf("%s: %w", cmd.Name, err)
	case same:
		return usage(cmd, "%s: TO %s is FILE itself: name another one", cmd.Name, to)
	}
	return nil
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

// replace makes a file, readable by its owner only, of the backup that write writes. The old file
// at the path, or at the target of a symbolic link there, stays until the new file is on disk. It
// refuses to replace anything but a backup or an empty file. After an error the old file is
// unchanged, and the error says so, unless only the names in the folder could not be synced. A
// signal that this process can catch leaves nothing of the new file.
func replace(command, path string, write func(io.Writer) error) error {
	err := checkTarget(path)
	target := path
	if err == nil {
		target, err = targetOf(path)
	}
	if err != nil {
		return fmt.Errorf("%s: TO %s: %w", command, path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(target), ".lockd-*.new")
	if err != nil {
		return fmt.Errorf("%s: TO %s: no file can be made there: %w", command, path, cause(err))
	}
	defer removedBySignal(f)()
	to := &made{f, path}
	err = errors.Join(write(to), to.error(f.Sync()), to.error(f.Close()))
	if err == nil { // something may have been made there meanwhile
		err = to.error(checkTarget(target))
	}
	if err == nil {
		err = to.error(os.Rename(f.Name(), target))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w; TO %s is unchanged", err, path), os.Remove(f.Name()))
	}
	return to.error(syncFolder(filepath.Dir(target)))
}

// removedBySignal makes each of the ending signals remove the file before it ends this process,
// until stop is called.
func removedBySignal(f *os.File) (stop func()) {
	s := newSignals(ending...)
	done := s.onFirst(func(one os.Signal) {
		removeOpen(f)
		s.stop()
		self, err := os.FindProcess(os.Getpid())
		if err == nil {
			err = self.Signal(one)
		}
		if err != nil { // Windows sends none
			os.Exit(exitFailed)
		}
		select {} // nothing is to be done any more
	})
	return func() {
		done()
		s.stop()
	}
}

// removeOpen removes a file that this process may have open. Windows removes no open file, so there
// the file is closed first, and what writes to it fails.
func removeOpen(f *os.File) {
	if os.Remove(f.Name()) != nil {
		_ = f.Close()
		_ = os.Remove(f.Name())
	}
}

// targetOf follows the symbolic links at a path.
func targetOf(path string) (string, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	target, err := filepath.EvalSymlinks(path)
	return target, cause(err)
}

// backupBegins is how every backup begins.
const backupBegins = "lockd backup"

// checkTarget refuses to replace anything but a backup or an empty file: a database may be in use,
// and its owner would go on writing to a file without a name.
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

// made is the file that a backup is written to, under a temporary name.
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

// syncFolder syncs the names in the folder to disk, where the system can do so.
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
