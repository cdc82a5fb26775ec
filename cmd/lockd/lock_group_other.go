//go:build unix && !linux

package main

import "syscall"

// own does nothing: other systems have no way to kill a command with its parent.
func own(*syscall.SysProcAttr) {}
