package file

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/lockd/lockd/store/internal/format"
)

// A process that has had all its writes synced says so when it closes the file: in the page of the
// newest meta page, in a sector of which bbolt has no use. What it says names bbolt's last commit
// and the next record of the log, and is void when either has come. It need not be on disk itself:
// what a power cut leaves was on disk, and without it the next process does more than it has to.
//
// A process takes it back before it writes anything else. So one that is killed, or has seen a sync
// fail, leaves none.
const (
	cleanAt   = sectorSize // bytes of the page before it
	cleanSize = format.ChecksumSize + 2*numberSize
)

// cleanPlace is where in the file it is.
func (f *File) cleanPlace() int64 {
	return int64(f.last.commit%2)*int64(f.tables.db.Info().PageSize) + cleanAt
}

// cleanWord is what is to be there.
func (f *File) cleanWord() []byte {
	word := make([]byte, format.ChecksumSize, cleanSize)
	word = binary.BigEndian.AppendUint64(word, f.last.commit)
	word = binary.BigEndian.AppendUint64(word, f.log.next)
	binary.BigEndian.PutUint32(word, format.Checksum(format.CleanTable, nil,
		word[format.ChecksumSize:]))
	return word
}

// closedCleanly reports whether the process that closed the file had all of it on disk.
func (f *File) closedCleanly() bool {
	found := make([]byte, cleanSize)
	_, err := f.handle.ReadAt(found, f.cleanPlace())
	f.clean = err == nil && f.log.cut == nil && bytes.Equal(found, f.cleanWord())
	return f.clean
}

// closeCleanly says that all of the file is on disk, if it is. It does no harm if that fails.
func (f *File) closeCleanly() {
	known := f.ready() && f.failed == nil && !f.log.unclear && f.tables.broken == nil
	if known && !f.clean && !f.noSync && f.checkFile() == nil {
		_, _ = f.handle.WriteAt(f.cleanWord(), f.cleanPlace())
	}
}

// unclean has the file say so no more.
func (f *File) unclean() error {
	if !f.clean {
		return nil
	}
	if _, err := f.handle.WriteAt(make([]byte, cleanSize), f.cleanPlace()); err != nil {
		return fmt.Errorf("take back that it was closed: %w", cause(err))
	}
	f.clean = false
	return nil
}
