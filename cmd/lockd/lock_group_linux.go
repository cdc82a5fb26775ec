package main

import "syscall"

// setChildSubreaper makes this process the parent of those among its descendants whose parents
// end. It is a number of prctl(2).
const setChildSubreaper = 36

// own has the command killed when this process is, since nothing would renew its session; and makes
// what the command leaves behind children of this process, which sees them end.
func own(attr *syscall.SysProcAttr) {
	attr.Pdeathsig = syscall.SIGKILL
	// If it is refused, the system's first process has them, as ever.
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
}
