package file

import (
	"errors"
	"syscall"
)

// sharingViolation is ERROR_SHARING_VIOLATION of winerror.h.
const sharingViolation syscall.Errno = 32

// isTaken reports whether a file could not be opened because another handle of it does not share
// it: a program has the file for itself, or another name of it is being removed. Hard links to a
// file share its handles.
func isTaken(err error) bool { return errors.Is(err, sharingViolation) }
