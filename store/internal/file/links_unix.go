//go:build unix

package file

import (
	"io/fs"
	"syscall"
)

// unlinked reports whether no name leads to the file any more.
func unlinked(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink == 0
}
