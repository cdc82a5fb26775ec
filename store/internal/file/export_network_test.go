package file

// LinuxNetworkName is linuxNetworkName.
func LinuxNetworkName(magic uint32) string { return linuxNetworkName(magic) }

// DarwinNetworkName is darwinNetworkName.
func DarwinNetworkName(name string, flags uint32) string { return darwinNetworkName(name, flags) }

// WindowsNetworkName is windowsNetworkName.
func WindowsNetworkName(kind uintptr) string { return windowsNetworkName(kind) }

// NetworkFS is networkFS.
func NetworkFS(path string) string { return networkFS(path) }
