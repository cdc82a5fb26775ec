//go:build !unix

package file

import "io/fs"

// unlinked reports false: a file that is open keeps its name here.
func unlinked(fs.FileInfo) bool { return false }
