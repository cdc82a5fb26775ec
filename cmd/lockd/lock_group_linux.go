package main

import "syscall"

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
