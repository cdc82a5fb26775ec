//go:build amd64 || arm64

package lockd_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/hook"
)

// syncChild has the path of the file of the child process, in which no file can be synced.
const syncChild = "LOCKD_TEST_SYNC"

const noSeccomp = "no seccomp filters here"

// Ensure that a write is on disk when it has returned nil: if the file cannot be synced, the write
// fails, and with SyncNever it does not.
func TestG2_WriteWaitsForTheDisk(t *testing.T) { inFilteredChild(t, writeWithoutSync) }

// Ensure that no caller sees what is in a file, and nothing is written to it, before that is on
// disk: if the file cannot be synced, Open fails and changes nothing. A process that was killed
// within a commit may have left a commit that is not on disk, and a power cut would take it away,
// together with what was written over the pages of the one before. With SyncNever Open does not
// fail.
func TestG2G3_OpenWaitsForTheDisk(t *testing.T) { inFilteredChild(t, openWithoutSync) }

// Ensure that a file which was closed is not written to by the next Open and Close: they succeed
// where no write is possible.
func TestOpen_NoWrite(t *testing.T) { inFilteredChild(t, openWithoutWrite) }

// Ensure that a file is there only when its name is on disk: if the folder of a new file cannot be
// synced, what makes the file fails.
func TestG2_NameWaitsForTheDisk(t *testing.T) { inFilteredChild(t, nameWithoutSync) }

// inFilteredChild calls fn with the path of a file, in a process of its own: a filter of system
// calls stays for the rest of a process's life.
func inFilteredChild(t *testing.T, fn func(t *testing.T, path string)) {
	if path := os.Getenv(syncChild); path != "" {
		fn(t, path)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	child.Env = append(os.Environ(), syncChild+"="+filepath.Join(t.TempDir(), "lockd.db"))
	output, err := child.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("%v:\n%s", err, output)
	case strings.Contains(string(output), noSeccomp):
		t.Skip(noSeccomp)
	case !strings.Contains(string(output), "--- PASS: "+t.Name()):
		t.Fatalf("the child has tested nothing:\n%s", output)
	}
}

func openWithoutWrite(t *testing.T, path string) {
	db, err := lockd.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 { // until the file has a log
		if _, err := db.Put("k", []byte{'0' + byte(i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	refuse(t, syscall.SYS_FSYNC, syscall.SYS_PWRITE64, syscall.SYS_FTRUNCATE)

	db, err = lockd.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e, there := db.Get("k"); !there || string(e.Value) != "5" {
		t.Errorf("the key is %+v, %v", e, there)
	}
	if _, err := db.Put("k", []byte("w"), nil); !errors.Is(err, syscall.EIO) {
		t.Errorf("a write returned %v, and should not be possible", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

func writeWithoutSync(t *testing.T, path string) {
	db := openSync(t, path, lockd.SyncAlways)
	never := openSync(t, path+".never", lockd.SyncNever)
	if _, err := db.Put("before", nil, nil); err != nil {
		t.Fatal(err)
	}
	refuse(t, syscall.SYS_FDATASYNC, syscall.SYS_FSYNC)

	_, err := db.Put("after", nil, nil)
	if !errors.Is(err, lockd.ErrCommit) || !errors.Is(err, syscall.EIO) {
		t.Errorf("put: got %v, want ErrCommit because of %v", err, syscall.EIO)
	}
	if _, there := db.Get("after"); there {
		t.Error("what is not on disk can be read")
	}
	if _, there := db.Get("before"); !there {
		t.Error("what was on disk cannot be read")
	}
	if _, err := never.Put("after", nil, nil); err != nil {
		t.Errorf("put with SyncNever: %v", err)
	}
}

func openWithoutSync(t *testing.T, path string) {
	db, err := lockd.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 { // until the file has a log
		if _, err := db.Put("k", []byte{'0' + byte(i)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	killed := path + ".killed"
	if err := os.WriteFile(killed, readFile(t, path), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	refuse(t, syscall.SYS_FDATASYNC, syscall.SYS_FSYNC)

	for _, path := range []string{path, killed} {
		before := readFile(t, path)
		for range 2 { // that it was tried does not count
			db, err := lockd.Open(path, nil)
			if db != nil || !errors.Is(err, lockd.ErrCommit) || !errors.Is(err, syscall.EIO) {
				t.Errorf("open: got %v, want ErrCommit because of %v", err, syscall.EIO)
			}
		}
		if !bytes.Equal(readFile(t, path), before) {
			t.Error("the file was changed")
		}
		openSync(t, path, lockd.SyncNever)
	}
}

func nameWithoutSync(t *testing.T, path string) {
	from, err := lockd.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	var backup bytes.Buffer
	if err := errors.Join(from.Backup(&backup), from.Close()); err != nil {
		t.Fatal(err)
	}
	refused := sync.OnceFunc(func() { refuse(t, syscall.SYS_FDATASYNC, syscall.SYS_FSYNC) })
	opts := &lockd.Options{Clock: &hook.Clock{
		Clock: clock.New(),
		Hooks: hook.Hooks{File: hook.File{SyncFolder: func(string) error {
			refused() // only now: the file itself was synced before
			return nil
		}}},
	}}

	if err := lockd.Restore(path, &backup, 0, opts); !errors.Is(err, syscall.EIO) {
		t.Errorf("restore: got %v, want %v", err, syscall.EIO)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) > 0 {
		t.Errorf("the folder has %v (%v)", files, err)
	}
}

func openSync(t *testing.T, path string, policy lockd.SyncPolicy) *lockd.DB {
	t.Helper()
	db, err := lockd.Open(path, &lockd.Options{Sync: policy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return db
}

// What the kernel's headers call these, where package syscall does not have them.
const (
	prSetNoNewPrivs   = 38
	seccompSetFilter  = 1
	seccompAllThreads = 1
	retErrno          = 0x00050000
	retAllow          = 0x7fff0000
	loadWord          = syscall.BPF_LD | syscall.BPF_W | syscall.BPF_ABS
	jumpIfEqual       = syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K
	giveBack          = syscall.BPF_RET | syscall.BPF_K
)

// machine is the number of the system call seccomp, and the kernel's number of the architecture.
var machine = map[string]struct {
	seccomp uintptr
	audit   uint32
}{
	"amd64": {317, 0xc000003e},
	"arm64": {277, 0xc00000b7},
}

// refuse makes every one of the system calls fail with EIO, in this process and from now on. The
// calls that sync a file have to be among them: that is tried out.
func refuse(t *testing.T, calls ...uint32) {
	t.Helper()
	here := machine[runtime.GOARCH]
	filter := []syscall.SockFilter{
		{Code: loadWord, K: 4}, // the architecture
		{Code: jumpIfEqual, K: here.audit, Jf: uint8(len(calls) + 1)},
		{Code: loadWord, K: 0}, // the system call
	}
	for i, call := range calls {
		filter = append(filter, syscall.SockFilter{
			Code: jumpIfEqual, K: call, Jt: uint8(len(calls) - i)})
	}
	filter = append(filter,
		syscall.SockFilter{Code: giveBack, K: retAllow},
		syscall.SockFilter{Code: giveBack, K: retErrno | uint32(syscall.EIO)})
	program := syscall.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}

	runtime.LockOSThread() // the first call is for this thread, the second takes that to the others
	defer runtime.UnlockOSThread()
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0)
	if errno == 0 {
		_, _, errno = syscall.RawSyscall(here.seccomp, seccompSetFilter, seccompAllThreads,
			uintptr(unsafe.Pointer(&program)))
	}
	runtime.KeepAlive(filter)
	switch errno {
	case 0:
	case syscall.ENOSYS, syscall.EINVAL:
		t.Skipf("%s: %v", noSeccomp, errno)
	default:
		t.Fatalf("this test needs to set a seccomp filter on itself: %v", errno)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "probe"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("the seccomp filter does not work: sync returned %v", err)
	}
}
