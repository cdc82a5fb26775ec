package main

import (
	"os"
	"os/exec"
	"syscall"
)

// ending are the signals that end the wait for a lock, and go to the group; passedOn are the others
// that go to the group.
var (
	ending   = []os.Signal{os.Interrupt, syscall.SIGTERM}
	passedOn []os.Signal

	childEnds []os.Signal
)

var (
	kernel32             = syscall.NewLazyDLL("kernel32.dll")
	consoleEvent         = kernel32.NewProc("GenerateConsoleCtrlEvent")
	createJob            = kernel32.NewProc("CreateJobObjectW")
	assignToJob          = kernel32.NewProc("AssignProcessToJobObject")
	terminateJob         = kernel32.NewProc("TerminateJobObject")
	ctrlBreak    uintptr = 1 // the one event that a group gets
)

// group is the process group of a command, and the job of the command and of all that it starts.
type group struct {
	cmd *exec.Cmd
	job uintptr // 0: there is none
}

// newGroup makes the command start in a group of its own.
func newGroup(cmd *exec.Cmd) *group {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
	job, _, _ := createJob.Call(0, 0)
	return &group{cmd, job}
}

// begin is called when the command has started. What it starts before is not in the job.
func (g *group) begin() {
	_ = g.cmd.Process.WithHandle(func(handle uintptr) { assignToJob.Call(g.job, handle) })
}

func (g *group) close() {
	if g.job != 0 {
		_ = syscall.CloseHandle(syscall.Handle(g.job))
	}
}

// signal sends the one event that there is, whatever the signal.
func (g *group) signal(os.Signal) { g.terminate() }

func (g *group) end(s os.Signal) { g.signal(s) }

// terminate asks the group to end.
func (g *group) terminate() { consoleEvent.Call(ctrlBreak, uintptr(g.cmd.Process.Pid)) }

func (g *group) kill() error {
	terminateJob.Call(g.job, 1)
	_ = g.cmd.Process.Kill()
	return nil
}

func (g *group) reap() {}

// alive reports whether any process of the group is left. Windows does not tell once the command
// has ended, so alive ends the job with the command.
func (g *group) alive() bool {
	if g.cmd.ProcessState != nil {
		terminateJob.Call(g.job, 1)
		return false
	}
	return true
}
