//go:build unix

package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ending are the signals that end the wait for a lock, and go to the group; passedOn are the others
// that go to the group.
var (
	ending   = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}
	passedOn = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGCONT,
		syscall.SIGTSTP, syscall.SIGWINCH}
)

// group is the process group of a command, which leads it.
type group struct {
	cmd *exec.Cmd
}

// newGroup makes the command start in a group of its own.
func newGroup(cmd *exec.Cmd) *group {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	own(cmd.SysProcAttr)
	return &group{cmd}
}

// begin is called when the command has started.
func (g *group) begin() {}

func (g *group) close() {}

// signal sends a signal to every process of the group, if any is left.
func (g *group) signal(s os.Signal) {
	if number, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(-g.cmd.Process.Pid, number)
	}
}

// end asks the group to end, by a signal. A stopped process is continued, so that it can.
func (g *group) end(s os.Signal) {
	g.signal(s)
	g.signal(syscall.SIGCONT)
}

func (g *group) terminate() { g.end(syscall.SIGTERM) }

// kill ends every process of the group. It returns an error if this process may end none.
func (g *group) kill() error {
	err := syscall.Kill(-g.cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) { // none is left
		return nil
	}
	return err
}

// alive reports whether any process of the group is left. The command itself has ended.
func (g *group) alive() bool {
	// Processes whose parents have ended may have become ours. The dead among them stay in the
	// group until their exit codes are collected.
	for {
		pid, err := syscall.Wait4(-g.cmd.Process.Pid, nil, syscall.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	return !errors.Is(syscall.Kill(-g.cmd.Process.Pid, 0), syscall.ESRCH)
}
