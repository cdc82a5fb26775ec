//go:build unix && !linux

package main

import (
	"os"
	"syscall"
)

// childEnds is empty: what the command leaves behind does not become a child of this process.
var childEnds []os.Signal

// own does nothing: other systems have no way to kill a command with its parent.
func own(*syscall.SysProcAttr) {}

func (g *group) reap() {}
