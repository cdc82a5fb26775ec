//go:build unix && !linux

package main

import "syscall"

// own does nothing: other systems have no way to have a command killed with its parent.
func own(*syscall.SysProcAttr) {}
