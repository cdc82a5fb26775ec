package file

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
	return darwinNetworkName(string(name), stat.Flags)
}
