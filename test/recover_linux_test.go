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
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	before := opened(t, info)
	done := make(chan error, 1)
	go func() {
		_, err := lockd.Recover(path, io.Discard, &lockd.Options{OpenTimeout: time.Minute})
		done <- err
	}()
	for opened(t, info) == before { // until Recover waits for the lock of the old file
		runtime.Gosched()
	}
	if err := errors.Join(os.Rename(path+".new", path), old.Close()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, lockd.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
}
