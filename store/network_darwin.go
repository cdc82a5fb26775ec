package store

import "syscall"

// networkFS names the file system that the path is on if the lock cannot be trusted there, and
// returns an empty string otherwise.
func networkFS(path string) string {
	var stat syscall.Statfs_t
	err := syscall.Statfs(path, &stat)
	for err == syscall.EINTR { // a server may be slow to answer
		err = syscall.Statfs(path, &stat)
	}
	if err != nil {
		return ""
	}
	var name []byte
	for _, c := range stat.Fstypename {
		if c == 0 {
			break
		}
		name = append(name, byte(c))
	}
	return networkName(string(name), stat.Flags)
}

// mountLocal is MNT_LOCAL of sys/mount.h: the file system is stored on this machine.
const mountLocal = 0x1000

// networkName returns the name of a file system, as statfs(2) returns it, if the lock cannot be
// trusted there.
func networkName(name string, flags uint32) string {
	if flags&mountLocal == 0 { // nfs, smbfs, afpfs, webdav and whatever else knows itself remote
		return name
	}
	switch name {
	case "macfuse", "osxfuse", "fusefs": // a server may be behind it, whatever it says of itself
		return name
	case "AppleVirtIOFS", "virtiofs", "vmhgfs", "prl_fs": // the host's folders, in a guest
		return name
	}
	return ""
}
