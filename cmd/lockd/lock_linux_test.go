package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// Ensure that the command does not outlive the process that renews its session.
func TestLock_Killed(t *testing.T) {
	t.Parallel()
	_, s := testServer(t)
	p := locking(t, s.URL, nil, "echo ready; exec sleep 1000")
	if got := p.line(); got != "ready" {
		t.Fatal(got)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.rest() // ends when the command does
}

// Ensure that a process that the command has left behind does not stay as a zombie after its end,
// while the command runs: those of a command that runs for long would fill the process table.
func TestLock_OrphansCollected(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"InGroup":    "sleep 0.01 >/dev/null & echo $!",
		"OwnSession": "setsid sleep 0.01 >/dev/null & echo $!",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, s := testServer(t)
			p := locking(t, s.URL, nil, `orphan=$(sh -c '`+script+`')
				while kill -0 "$orphan" 2>/dev/null; do sleep 0.02; done; exit 3`)
			p.rest()
			p.ends(3, "")
		})
	}
}

// Ensure that the loss of the lock is told if the command cannot be ended, as it runs as another
// user, and that the error does not say that it was.
func TestLock_CommandOfOtherUser(t *testing.T) {
	t.Parallel()
	setpriv, err := exec.LookPath("setpriv")
	program, errProgram := os.Executable()
	folder := t.TempDir()
	// A program that makes its caller the superuser lies in the folder for a moment. No user is in
	// the group that may enter the folder.
	const group = 2_000_000_000
	err = errors.Join(err, errProgram, os.Chmod(filepath.Dir(folder), 0o711),
		os.Chown(folder, 0, group), os.Chmod(folder, 0o710))
	if err != nil || os.Getuid() != 0 {
		t.Skip("only the superuser, with setpriv, can start processes as other users")
	}
	lockd, become := filepath.Join(folder, "lockd"), filepath.Join(folder, "become")
	write(t, lockd, read(t, program))
	write(t, become, read(t, setpriv))
	err = errors.Join(os.Chmod(lockd, 0o755), os.Chmod(become, os.ModeSetuid|0o755))
	if err != nil {
		t.Fatal(err)
	}
	nobody := []string{"--reuid", "65534", "--regid", strconv.Itoa(group), "--clear-groups", "--"}
	superuser := []string{become, "--reuid", "0", "--clear-groups", "--"}
	trial := append(append(slices.Clone(nobody), superuser...), "true")
	if err := exec.CommandContext(t.Context(), setpriv, trial...).Run(); err != nil {
		t.Skip("a program in the folder cannot change the user: ", err)
	}
	db, s := testServer(t)
	args := append(nobody, lockd, "lock", "--http-addr", s.URL, "k", "--")
	args = append(append(args, superuser...), "sh", "-c", "echo $$; exec sleep 1000 2>/dev/null")
	p := startProgram(t, nil, setpriv, args...)
	pid, err := strconv.Atoi(p.line())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	if err := db.EndSession(sessionsOf(db)[0].ID); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(longest, func() { _ = p.Process.Kill() }).Stop() // should it wait
	p.ends(exitLost, "the lock was lost, and the command cannot be ended, and goes on without "+
		"it: operation not permitted: ")
}

// Ensure that the command does not get a terminal as its input, because it could not read from it.
func TestLock_TerminalAsInput(t *testing.T) {
	t.Parallel()
	const lock, number = 0x40045431, 0x80045430 // TIOCSPTLCK and TIOCGPTN of ioctl(2)
	owner, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there is no terminal to be had: ", err)
	}
	defer func() { _ = owner.Close() }()
	var locked, n int32
	for request, at := range map[uintptr]*int32{lock: &locked, number: &n} {
		_, _, failed := syscall.Syscall(syscall.SYS_IOCTL, owner.Fd(), request,
			uintptr(unsafe.Pointer(at)))
		if failed != 0 {
			t.Fatal(failed)
		}
	}
	_, s := testServer(t)
	p := lockingWithInput(t, s.URL, fmt.Sprintf("/dev/pts/%d", n), "cat; echo done")
	if got := p.rest(); got != "done\n" {
		t.Errorf("output %q", got)
	}
	p.ends(0, "")
}
