package main

import (
	"fmt"
	"os"
	"syscall"
	"testing"
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
