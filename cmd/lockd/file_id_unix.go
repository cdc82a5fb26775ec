//go:build unix

package main

import (
	"fmt"
	"os"
	"syscall"
)

// inode returns what tells the file at the path from every other file of this machine.
func inode(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", fmt.Errorf("%s: the system does not say which file it is", path)
	}
	return fmt.Sprintf("%d %d", stat.Dev, stat.Ino), nil
}
