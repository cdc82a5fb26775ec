package file

import (
	"path/filepath"
	"syscall"
	"unsafe"
)

var driveType = syscall.NewLazyDLL("kernel32.dll").NewProc("GetDriveTypeW")

// networkFS returns a name if the path is on a drive of another machine, and an empty string
// otherwise. A link or a mount point on a local drive that leads to another one is not recognised.
func networkFS(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return ""
	}
	root, err := syscall.UTF16PtrFromString(filepath.VolumeName(path) + `\`)
	if err != nil || driveType.Find() != nil {
		return ""
	}
	kind, _, _ := driveType.Call(uintptr(unsafe.Pointer(root))) // has no error
	return windowsNetworkName(kind)
}
