package store

// NetworkName is networkName.
func NetworkName(magic uint32) string { return networkName(magic) }

// NetworkFS is networkFS.
func NetworkFS(path string) string { return networkFS(path) }
