package file

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/lockd/lockd/store/internal/format"
)

// File is rows in a bbolt file, which it has open and locked. One goroutine at a time may use it; a
// step of a checkpoint may run on another.
type File struct {
	tables   *tables
	handle   *os.File // bbolt's own
	path     string   // by which it was opened
	size     int64    // of the file when it was last looked at; it never shrinks
	named    bool     // the file system counts its names
	noSync   bool     // see Options
	last     header   // what the last commit left; its commit and log are those of bbolt's last
	log      commitLog
	stepping *stepping // a step of the checkpoint, which has tables until it has ended; nil: none
	buffer   []byte    // the last record's sectors, to be used again
	tidied   bool      // Tidy has done, or begun, the work that the last commit has left
	failed   error     // why nothing may be written any more: see conclude
	opened   *metaPage // the newest meta page at Open; nil: it is on disk, as all else is
	clean    bool      // the file says that it was closed cleanly, and nothing was written since
}

// Commit writes the rows, which come table by table and in order, with the index and the tally. The
// caller must not use the rows after that. Commit returns when they are as durable as
// Options.NoSync says. After an error the file has all of them or nothing: see [File.Index].
func (f *File) Commit(rows []format.Write, index uint64, left format.Tally) error {
	err := f.tables.hooks.Around(func() error {
		return reveal(f.write(rows, header{index: index, tally: left}))
	})
	if err != nil {
		return fmt.Errorf("commit index %d: %w", index, err)
	}
	return nil
}

// write commits the rows, and what they leave, to the log or to the tables.
func (f *File) write(rows []format.Write, last header) error {
	if err := f.makeReady(); err != nil {
		return err
	}
	if size := recordSize(rows); f.log.takes(size) && !(f.log.empty() && f.young()) {
		return f.writeLog(rows, last, size)
	}
	return f.writeTables(rows, last)
}

// makeReady does what has to come before any new write. It returns an error if nothing may be
// written.
func (f *File) makeReady() error {
	if err := f.checkFile(); err != nil {
		return err
	}
	if err := f.Secure(); err != nil {
		return err
	}
	if err := f.unclean(); err != nil {
		return err
	}
	if step := f.Tidy(); step != nil {
		_ = step() // conclude takes note of its error
	}
	f.conclude()
	return f.failed
}

// young reports whether bbolt's last commit has made a segment. That segment may not have a record
// yet: if the meta page of that commit is damaged, the next Open reads the meta page before it,
// which has to know every segment with records.
func (f *File) young() bool { return f.last.log.made == f.last.commit }

// flush syncs what was written, unless Options.NoSync is set.
func (f *File) flush() error {
	if !f.noSync {
		if err := f.tables.db.Sync(); err != nil {
			return err
		}
	}
	return f.tables.hooks.synced()
}

func (f *File) blank(e *sectorRun) error {
	empty := e.segment.blank(nil, e.place, e.sectors)
	if _, err := f.handle.WriteAt(empty, e.segment.offset(e.place)); err != nil {
		return fmt.Errorf("blank a record: %w", cause(err))
	}
	return nil
}

// writeLog commits the rows as one record of about that size, and keeps them.
func (f *File) writeLog(rows []format.Write, last header, size int) error {
	payload, err := makeRecord(rows, last, size)
	if err != nil {
		return err
	}
	l, sectors := &f.log, sectorsFor(len(payload))
	if l.full(sectors) { // no record may overwrite one that counts
		if err := f.finish(); err != nil {
			return err
		}
		if err := f.age(); err != nil {
			return err
		}
	}
	at := l.reserve(sectors)
	err = f.tables.disk.alone(func() error {
		err := f.append(at, payload)
		if err != nil {
			l.cut = &at
			l.unclear = !f.withdraw(&at)
		}
		return err
	})
	if err != nil {
		return err
	}
	if l.filling.first == 0 {
		l.filling.first = l.next
	}
	l.filling.used[l.lane()] += sectors
	l.latest = rows
	l.next++
	f.last.index, f.last.tally, f.tidied = last.index, last.tally, false
	return nil
}

// age makes the segments old enough for records, by one more commit of bbolt's: see young.
func (f *File) age() error {
	if !f.young() {
		return nil
	}
	c, _, err := f.tables.commit(tableCommit{last: f.next(f.log.after(0))})
	if err != nil {
		return err
	}
	f.committed(c)
	return nil
}

// append writes the record's sectors, and syncs them.
func (f *File) append(at sectorRun, payload []byte) error {
	s := at.segment
	f.buffer = s.frame(f.buffer[:0], at.place, f.log.next, payload)
	if _, err := f.handle.WriteAt(f.buffer, s.offset(at.place)); err != nil {
		return fmt.Errorf("write record %d: %w", f.log.next, cause(err))
	}
	return f.flush()
}

// %.0w wraps fs.ErrNotExist, and adds no text.
var errRemoved = fmt.Errorf("the file was removed or replaced while it was open%.0w",
	fs.ErrNotExist)

// checkFile returns ErrCorrupt if the file was cut off: bbolt would notice only when it looks for a
// page, and a write would leave a hole there. It returns fs.ErrNotExist if the file was removed, or
// another file was renamed over it: any later write to it is lost.
func (f *File) checkFile() error {
	info, err := f.handle.Stat()
	switch {
	case err != nil:
		return cause(err)
	case f.named && names(info) == 0:
		return errRemoved
	case info.Size() < f.size:
		return corrupt("it is cut off: it has %d bytes, and had %d", info.Size(), f.size)
	}
	f.size = info.Size()
	return nil
}

// withdraw takes back the record that was written last. It returns true if the file has neither the
// whole record nor a half-written sector: then the next Open finds what it would find without the
// record.
func (f *File) withdraw(at *sectorRun) bool {
	if f.blank(at) == nil {
		return true
	}
	found := make([]byte, len(f.buffer))
	if _, err := f.handle.ReadAt(found, at.segment.offset(at.place)); err != nil {
		return false
	}
	for i := range at.sectors {
		sector := found[i*sectorSize : (i+1)*sectorSize]
		if !at.segment.readSector(at.place+i, sector).sound {
			return false
		}
	}
	return !bytes.Equal(found, f.buffer)
}

// withdrawAgain tries once more, before the file is closed, to take back a record that may be half
// in the file: the disk may have room again, and half a sector would be taken for damage. A failure
// does no harm.
func (f *File) withdrawAgain() {
	if f.log.unclear && f.failed == nil && f.checkFile() == nil {
		_ = f.blank(f.log.cut)
	}
}

var errUnclear = errors.New("it is not known whether the commit that failed is in the file")

// Index returns the last index that the file has. After a failed commit the index tells whether the
// commit is in the file nevertheless.
func (f *File) Index() (uint64, error) {
	f.wait()
	if err := f.checkFile(); err != nil {
		return 0, err
	}
	written, err := f.tables.header()
	switch {
	case err != nil:
		return 0, err
	case f.failed != nil, f.log.unclear,
		written.commit != f.last.commit && written.index == f.last.index:
		return 0, errUnclear
	case written.commit == f.last.commit:
		return f.last.index, nil
	}
	return written.index, nil
}

// Tally returns the tally of the rows that the last commit left.
func (f *File) Tally() format.Tally { return f.last.tally }

// Size asks the file system for the size of the file in bytes, its log included. It returns 0 if
// that fails, or if the file is closed. Any goroutine may call it at any time.
func (f *File) Size() int64 {
	info, err := f.handle.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// Close closes the file. Only the first call does anything.
func (f *File) Close() error {
	f.wait()
	f.withdrawAgain()
	f.closeCleanly()
	return f.tables.close()
}
