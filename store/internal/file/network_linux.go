package file

import "syscall"

// networkFS names the file system that the path is on if the lock cannot be trusted there, and
// returns an empty string otherwise. A network file system under an overlay or an encryption
// shows as that, and is not recognised.
func networkFS(path string) string {
	var stat syscall.Statfs_t
	err := syscall.Statfs(path, &stat)
	for err == syscall.EINTR { // a server may be slow to answer
		err = syscall.Statfs(path, &stat)
	}
	if err != nil {
		return ""
	}
	return linuxNetworkName(uint32(stat.Type)) // its sign and size differ among machines
}
