// Package rival has what lockd is compared with: each does the same pairs, a lock taken and
// released, in the best way that it offers, and says how it is set.
package rival

import "runtime/debug"

// Version is the version of a module that this program was built with, or an empty string.
func Version(module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return dependency.Version
		}
	}
	return ""
}

// row is what a lock table of one's own would keep of a lock.
type row struct {
	key    string
	holder [16]byte
	index  uint64
}

// someone is the holder in every row.
var someone = [16]byte{1}
