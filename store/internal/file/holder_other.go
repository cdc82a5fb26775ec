//go:build !linux

package file

// by says who has the file open, as far as the system tells.
func by(string) string { return "" }
