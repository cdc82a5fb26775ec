//go:build unix

package file

import (
	"io/fs"
	"os"
	"syscall"
)

// names returns how many names lead to the file.
func names(info fs.FileInfo) uint64 { return uint64(info.Sys().(*syscall.Stat_t).Nlink) }

// giveTo gives the file the owner and the group of the other one, if they differ.
func giveTo(path string, other fs.FileInfo) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	was, is := other.Sys().(*syscall.Stat_t), info.Sys().(*syscall.Stat_t)
	if was.Uid == is.Uid && was.Gid == is.Gid {
		return nil
	}
	return os.Chown(path, int(was.Uid), int(was.Gid))
}
