package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"testing"

	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
)

// ordinaryUser is a user who may do no more than the modes of files say.
const ordinaryUser = 4711

// newDropBox returns a folder in which the test may make and rename files, but which it may not
// read. The function that it returns lets the test read it.
func newDropBox(t *testing.T) (box string, readable func()) {
	t.Helper()
	box = t.TempDir()
	if os.Geteuid() == 0 {
		for _, err := range []error{
			os.Chmod(filepath.Dir(box), 0o711), os.Chown(box, ordinaryUser, ordinaryUser),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		runtime.LockOSThread() // whose user changes, for files only
		setUser := func(user int) {
			if err := syscall.Setfsuid(user); err != nil {
				t.Fatal(err)
			}
		}
		setUser(ordinaryUser)
		t.Cleanup(func() {
			setUser(0)
			runtime.UnlockOSThread()
		})
	}
	chmod := func(mode fs.FileMode) {
		if err := os.Chmod(box, mode); err != nil {
			t.Fatal(err)
		}
	}
	chmod(0o300)
	t.Cleanup(func() { chmod(0o700) })
	return box, func() { chmod(0o700) }
}

// Ensure that no file gets a name in a folder that cannot be synced because it cannot be read: a
// later Open would take the name for one that is on disk.
func TestOpening_G2_UnreadableFolder(t *testing.T) {
	box, readable := newDropBox(t)
	path := filepath.Join(box, "new.db")
	for range 2 {
		s := store.New()
		if err := s.Open(path, store.Options{}); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("got %v, want fs.ErrPermission", err)
		}
	}
	if err := store.Compact(path, store.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("compact: got %v, want fs.ErrNotExist", err)
	}
	if _, err := openStore(path); err != nil { // without sync
		t.Errorf("got %v", err)
	}
	f := openFile(t, path, store.Options{}) // the process that made it had to sync its name
	if err := f.Secure(); err != nil {
		t.Errorf("a file that is there: got %v", err)
	}
	closeFile(t, f)
	readable()
	if names := folder(t, path); len(names) != 1 {
		t.Errorf("left in the folder: %q", names)
	}
}

// Ensure that Compact leaves a file as it is in such a folder.
func TestCompact_G2_UnreadableFolder(t *testing.T) {
	box, readable := newDropBox(t)
	path := filepath.Join(box, "old.db")
	if _, err := openStore(path); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Compact(path, store.Options{}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v, want fs.ErrPermission", err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was replaced, %v", err)
	}
	if err := store.Compact(path, store.Options{NoSync: true}); err != nil {
		t.Errorf("without sync: %v", err)
	}
	readable()
	if names := folder(t, path); len(names) != 1 {
		t.Errorf("left in the folder: %q", names)
	}
}

// Ensure that Compact leaves a file as it is that it may not give its owner back.
func TestCompact_OfAnotherOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a file of another owner")
	}
	box, readable := newDropBox(t)
	readable()
	path := filepath.Join(box, "old.db")
	if _, err := openStore(path); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Chmod(path, 0o666),
		syscall.Setfsuid(0), os.Chown(path, 0, 0), syscall.Setfsuid(ordinaryUser),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	before := contentOf(t, path)
	err := store.Compact(path, store.Options{})
	want := path + ": give the new file the owner of the old one: operation not permitted"
	if !errors.Is(err, fs.ErrPermission) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if !bytes.Equal(contentOf(t, path), before) || owner(t, path) != [2]uint32{} {
		t.Error("the file was replaced")
	}
	if names := folder(t, path); len(names) != 1 {
		t.Errorf("left in the folder: %q", names)
	}
}

// Ensure that a file whose making fails has lost its name when its lock is free, also on a file
// system without links: a process that waits for the lock must not commit to a file that is removed
// then.
func TestOpening_G2_FailedFileIsRemovedUnderItsLock(t *testing.T) {
	for range 50 {
		path := newPath(t)
		var handle *os.File
		var o store.Options
		var locked syscall.Stat_t // the file when it was locked
		done := make(chan error)
		o.Hooks.SyncFolder = func(string) (err error) {
			if handle, err = os.OpenFile(path, os.O_RDWR, 0); err != nil {
				return err
			}
			go func() {
				fd := int(handle.Fd())
				err := syscall.Flock(fd, syscall.LOCK_EX)
				done <- errors.Join(err, syscall.Fstat(fd, &locked))
			}()
			return errors.Join(syscall.EIO, awaitWaiter(handle))
		}
		if err := file.CreateInPlace(path, o); !errors.Is(err, syscall.EIO) {
			t.Fatalf("got %v", err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if locked.Nlink != 0 {
			t.Fatalf("it has %d names", locked.Nlink)
		}
		if err := handle.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitWaiter returns when somebody waits for the file's lock.
func awaitWaiter(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	waiter := regexp.MustCompile(fmt.Sprintf(`-> FLOCK .*:%d 0 EOF`,
		info.Sys().(*syscall.Stat_t).Ino))
	for {
		locks, err := os.ReadFile("/proc/locks")
		if err != nil || waiter.Match(locks) {
			return err
		}
		runtime.Gosched()
	}
}
