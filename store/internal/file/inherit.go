package file

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/lockd/lockd/store/internal/format"
)

// inherit has on disk what was in the file when it was opened, before anybody is told of it and
// anything else is written, and nothing where the next record goes.
//
// The process that had the file open before may have been killed between a write and its sync: then
// the file has what a power cut may yet undo, and a sync is what it needs. Or that sync has failed,
// and then another one does not help: the system tells of a write that has failed only once, and
// takes for written what is not. Nothing in the file tells the two apart. So it is written once
// more, as it was read, unless the process says that it has closed the file with all of it on disk
// (see closeCleanly). Then a sync is all, for a file that was copied meanwhile, and there is
// nothing to be synced otherwise.
//
// It is little that is written: a process goes on only when what it wrote last is on disk, or is
// not in force, and all that may be missing is of one write.
//
//   - bbolt syncs the pages of a commit before it writes the meta page that names them. If the
//     first sync fails, there is no such meta page, and nothing that is in force was written. If
//     the second one does, all that the meta page names is on disk, but not itself. So it is
//     written, and no other page. Without it the next commit would write over pages, or records,
//     of the commit before, which is the one on disk: of the two, neither would be left.
//   - A record of the log is begun when the one before is on disk. So the newest one is written.
//   - One that was withdrawn may be on disk all the same, where the file has empty sectors. It has
//     the number of the next one, and what is left of it there would be taken for a part of that,
//     or for one that has lost others. So sectors that are empty are written, as far as a record
//     goes, in the places where the next one may be.
//
// Nor may the file's name be on disk: the process that made it may have been killed before that, or
// have had Options.NoSync. So the folder is synced too.
//
// A power cut in the middle of this leaves what one in the middle of the last write does. What was
// written with Options.NoSync is not had so: it is not known what of it is on disk.
func (f *File) inherit() error {
	if f.opened != nil && !f.closedCleanly() {
		if err := f.writeAgain(); err != nil {
			return fmt.Errorf("write again what was in it: %w", cause(err))
		}
		if err := f.syncName(); err != nil {
			return fmt.Errorf("sync its folder: %w", cause(err))
		}
	}
	if f.log.cut != nil {
		if err := f.blank(f.log.cut); err != nil {
			return err
		}
	}
	if err := f.flush(); err != nil {
		return fmt.Errorf("sync what was in it: %w", err)
	}
	f.opened, f.log.newest = nil, nil
	f.log.cut, f.log.unclear = nil, false
	return nil
}

// syncName has on disk the name that the file was opened by. The name of a link to it is the
// business of the process that made the link, and so is the new name of a file that was moved
// since. A process that may not read the folder has not made the name.
func (f *File) syncName() error {
	path, err := filepath.EvalSymlinks(f.path)
	if err == nil {
		o := Options{NoSync: f.noSync, Hooks: f.tables.hooks}
		err = syncFolder(filepath.Dir(path), o)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// Secure has inherit done, unless there is nothing to do.
func (f *File) Secure() error {
	if f.ready() {
		return nil
	}
	return f.tables.disk.alone(f.inherit)
}

// ready reports whether inherit has nothing to do.
func (f *File) ready() bool { return f.opened == nil && f.log.cut == nil }

// writeAgain writes what may be in memory only, as it was read.
func (f *File) writeAgain() error {
	meta := f.opened
	at := int64(meta.number)*int64(meta.pageSize) + headSize
	if _, err := f.handle.WriteAt(meta.raw[:], at); err != nil {
		return err
	}
	if payload := f.log.newest; payload != nil {
		s, number := f.log.filling, f.log.next-1
		lane := number % lanes
		place := s.place(int(lane), s.used[lane]-sectorsFor(len(payload)))
		sectors := s.frame(nil, place, number, payload)
		if _, err := f.handle.WriteAt(sectors, s.offset(place)); err != nil {
			return err
		}
	}
	for _, run := range f.log.ahead() {
		if err := f.blankAgain(run); err != nil {
			return err
		}
	}
	return nil
}

// blankAgain has empty sectors where there are such, or some of the next record.
func (f *File) blankAgain(run sectorRun) error {
	s := run.segment
	content := make([]byte, run.sectors*sectorSize)
	if _, err := f.handle.ReadAt(content, s.offset(run.place)); err != nil {
		return err
	}
	from, to := run.sectors, 0 // what has to be written: all else is as it is
	for i := range run.sectors {
		start := i * sectorSize
		found := s.readSector(run.place+i, content[start:start+sectorSize])
		if !found.sound {
			return errSector(run.place+i, s.number)
		}
		if found.number == 0 || found.number == f.log.next {
			copy(content[start:], s.blank(nil, run.place+i, 1))
			from, to = min(from, i), i+1
		}
	}
	if from >= to {
		return nil
	}
	_, err := f.handle.WriteAt(content[from*sectorSize:to*sectorSize], s.offset(run.place+from))
	return err
}

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
