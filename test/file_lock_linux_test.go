package lockd_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// opened returns how often this process has the file open.
func opened(t *testing.T, file os.FileInfo) (times int) {
	t.Helper()
	const folder = "/proc/self/fd"
	descriptors, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range descriptors {
		// Some are closed before they are looked at.
		if info, err := os.Stat(filepath.Join(folder, d.Name())); err == nil &&
			os.SameFile(info, file) {
			times++
		}
	}
	return times
}

// waitsForLock starts a call that has to wait for the lock of the file, and returns when it has
// opened the file for that.
func waitsForLock(
	t *testing.T, path string, call func() error,
) (file os.FileInfo, done chan error) {
	t.Helper()
	file, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	before := opened(t, file)
	done = make(chan error, 1)
	go func() { done <- call() }()
	for opened(t, file) <= before {
		runtime.Gosched()
	}
	return file, done
}

// Ensure that Recover, when it waited for a file which was replaced meanwhile, as Compact does it,
// returns ErrInUse and does not read the new file, which a database has open.
func TestRecover_Replaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockd.db")
	options := &lockd.Options{Sync: lockd.SyncNever}
	old, err := lockd.Open(path, options)
	if err != nil {
		t.Fatal(err)
	}
	other, err := lockd.Open(path+".new", options)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_, done := waitsForLock(t, path, func() error {
		return second(lockd.Recover(path, io.Discard, &lockd.Options{OpenTimeout: time.Minute}))
	})
	if err := errors.Join(os.Rename(path+".new", path), old.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, lockd.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
}

// Ensure that Compact, when it waited for a file whose mode was changed meanwhile, leaves it as it
// was changed.
func TestCompact_ModeOfTheLockedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockd.db")
	db, err := lockd.Open(path, &lockd.Options{Sync: lockd.SyncNever, FileMode: 0o644})
	if err != nil {
		t.Fatal(err)
	}
	info, done := waitsForLock(t, path, func() error {
		return lockd.Compact(path, &lockd.Options{
			Sync: lockd.SyncNever, OpenTimeout: time.Minute,
		})
	})
	if err := errors.Join(os.Chmod(path, 0o600), db.Close(), <-done); err != nil {
		t.Fatal(err)
	}
	after, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if os.SameFile(info, after) || after.Mode() != 0o600 {
		t.Errorf("got mode %v, want 0600 of another file", after.Mode())
	}
}
