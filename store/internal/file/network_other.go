//go:build !linux && !darwin && !windows

package file

// networkFS recognises nothing here: systems differ too much in how they name file systems.
func networkFS(string) string { return "" }
