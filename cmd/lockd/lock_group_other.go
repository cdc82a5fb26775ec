//go:build unix && !linux

package main

import (
	"os"
	"syscall"
)

// childEnds is empty: no process becomes a child of this one.
var childEnds []os.Signal

// own does nothing: other systems have no way to kill a command with its parent.
func own(*syscall.SysProcAttr) {}

func (g *group) reap() {}
