//go:build unix

package file

import (
	"io/fs"
	"os"
	"syscall"
)

// unlinked reports whether no name leads to the file any more.
func unlinked(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink == 0
}

// giveTo has the file belong to those to whom the other one does, if it does not.
func giveTo(path string, other fs.FileInfo) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	was, ok := other.Sys().(*syscall.Stat_t)
	is, alsoOK := info.Sys().(*syscall.Stat_t)
	if !ok || !alsoOK || was.Uid == is.Uid && was.Gid == is.Gid {
		return nil
	}
	return os.Chown(path, int(was.Uid), int(was.Gid))
}
