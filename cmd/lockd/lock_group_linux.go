package main

import (
	"os"
	"syscall"
	"unsafe"
)

// childEnds are the signals that tell of the end of a child.
var childEnds = []os.Signal{syscall.SIGCHLD}

// setChildSubreaper makes this process the parent of its descendants whose parents have ended. It
// is an option of prctl(2).
const setChildSubreaper = 36

// own makes the command die with this process, since nothing would renew its session. What the
// command leaves behind becomes children of this process, which sees them end.
func own(attr *syscall.SysProcAttr) {
	attr.Pdeathsig = syscall.SIGKILL
	// If it is refused, the system's first process becomes their parent, as usual.
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
}

// reap collects the exit codes of the children that have ended, except the command's. What the
// command has left behind would else stay as zombies for as long as it runs.
func (g *group) reap() {
	for {
		pid := endedChild()
		if pid <= 0 || pid == g.cmd.Process.Pid { // supervise waits for the command itself
			return
		}
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
}

// endedChild returns a child that has ended, whose exit code is not collected yet, or 0.
func endedChild() (pid int) {
	var info struct { // siginfo_t, of which waitid(2) sets this
		_     [3]int32
		child struct {
			_   [0]uintptr // where this begins depends on the size of a pointer
			pid int32
		}
		_ [28]int32
	}
	const all = 0 // P_ALL
	_, _, _ = syscall.Syscall6(syscall.SYS_WAITID, all, 0, uintptr(unsafe.Pointer(&info)),
		syscall.WEXITED|syscall.WNOHANG|syscall.WNOWAIT, 0, 0)
	return int(info.child.pid)
}
