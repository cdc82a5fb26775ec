package file

import (
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"github.com/lockd/lockd/store/internal/format"
)

// Compact is store.Compact. It first gives the rows to the reader, which may refuse them: a copy
// must not replace a damaged file whose rows might still be saved. Then rows yields what the reader
// was given.
func Compact(path string, o Options, reader Reader, rows iter.Seq[format.Write]) (err error) {
	// The file is to be replaced, not a link that leads to it.
	link := path
	path, err = filepath.EvalSymlinks(link)
	if err != nil {
		return fmt.Errorf("%s: %w", link, cause(err))
	}
	o.Existing = true
	o.Mode = 0o600 // until the copy is like the file
	f, err := Open(path, o, reader)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.handle.Stat() // as it is after the wait for the lock
	if err != nil {
		return err
	}
	if n := names(info); n > 1 {
		return fmt.Errorf("%s: %w: it has %d names (hard links), and only one of them would be "+
			"that of the smaller file; remove the others first: a crash may have left one in "+
			"its folder, as .lockd-….new", path, ErrInvalid, n)
	}
	other := newName(path)
	err = build(other, o, info, f.last.index, rows, func() error {
		if err := os.Rename(other, path); err != nil {
			return err
		}
		// Still under the lock of the copy: no database may commit to it while a power cut could
		// bring the old file back.
		return syncFolder(filepath.Dir(path), o)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
