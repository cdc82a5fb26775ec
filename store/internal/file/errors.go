package file

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/lockd/lockd/store/internal/format"
)

// What [Open] returns when it refuses a file. Package store documents them.
var (
	// ErrInUse is store.ErrInUse.
	ErrInUse = errors.New("file is in use")

	// ErrFormat is store.ErrFormat.
	ErrFormat = errors.New("file has an unknown format")

	// ErrInvalid is store.ErrInvalid.
	ErrInvalid = errors.New("invalid argument")
)

// corrupt says what is damaged, and how.
func corrupt(text string, args ...any) error {
	return fmt.Errorf("%w: "+text, append([]any{format.ErrCorrupt}, args...)...)
}

// reveal makes errors.Is find why the file could not grow, or be synced then: of that cause bbolt
// keeps only the text.
func reveal(err error) error {
	if err == nil {
		return nil
	}
	for _, cause := range []syscall.Errno{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EIO, syscall.EROFS,
	} {
		if strings.HasSuffix(err.Error(), ": "+cause.Error()) && !errors.Is(err, cause) {
			return fmt.Errorf("%w%.0w", err, cause) // %.0w wraps, and adds no text
		}
	}
	return err
}

// cause takes the path off an error of package os, for texts that begin with it.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// system returns the system's own error that err wraps, without the paths in the text of err. It
// returns err if that wraps none.
func system(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

func errRow(row format.Write, err error) error {
	return fmt.Errorf("write row %.100q of %s: %w", row.Key, format.TableName(row.Table), err)
}

func errNoTable(table byte) error {
	return corrupt("its table of %s is missing", format.TableName(table))
}
