package file

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// inherit puts on disk what was in the file when it was opened, and empty sectors where the next
// record goes. It does so before any caller is told what was in the file, and before anything else
// is written.
//
// The previous process, which had the file open before, may have been killed between a write and
// its sync. Then a power cut may still undo the write, and a sync is needed. Or that sync has
// failed, and then another sync does not help: the system reports a failed write only once, and
// afterwards counts as written what is not. Nothing in the file tells the two cases apart. So
// inherit writes once more what was in the file, as it was read, unless the previous process noted
// that it closed the file with everything on disk (see closeCleanly). Then inherit only syncs,
// which matters only for a file that was copied meanwhile.
//
// Little has to be written: a process goes on only when its last write is on disk, or does not
// count, so only one write may be missing.
//
//   - bbolt syncs the pages of a commit before it writes the meta page that names them. If the
//     first sync fails, there is no such meta page, and nothing that counts was written. If the
//     second sync fails, all that the meta page names is on disk, but the meta page is not. So the
//     meta page is written, and no other page. Without that the next commit would overwrite pages,
//     or records, of the commit before, which is the one on disk: then neither of the two would be
//     left.
//   - A record of the log is begun when the one before is on disk. So the newest record is written.
//   - A record that was withdrawn may be on disk all the same, where the file has empty sectors. It
//     has the number of the next record, and its sectors would be taken for a part of the next
//     record, or for a sign that records are lost. So empty sectors are written, as many as a
//     record may have, in the places where the next record may be.
//
// The file's name may not be on disk either: the process that made the file may have been killed
// before it synced the folder, or may have had Options.NoSync. So the folder is synced too.
//
// A power cut while inherit writes leaves what a power cut during the last write leaves. inherit
// does not secure what was written with Options.NoSync: it is not known what of that is on disk.
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

// syncName syncs the name by which the file was opened. A process that links the file, or moves
// it, has to sync the new name. A process that may not read the folder has not made the name:
// see checkFolder.
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

// Secure calls inherit, unless there is nothing to do.
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

// blankAgain writes empty sectors where the run has empty sectors, or sectors of the next record.
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

// cleanPlace is where in the file its clean word is.
func (f *File) cleanPlace() int64 { return cleanPlace(f.last.commit, uint64(f.tables.page)) }

// cleanWord is the clean word of the file as it is.
func (f *File) cleanWord() cleanWord { return cleanWord{f.last.commit, f.log.next} }

// closedCleanly reports whether the process that closed the file had all of it on disk.
func (f *File) closedCleanly() bool {
	f.clean = f.log.cut == nil && readCleanWord(f.handle, f.cleanPlace()) == f.cleanWord()
	return f.clean
}

// closeCleanly writes the clean word, if all of the file is on disk. It does no harm if that fails.
func (f *File) closeCleanly() {
	known := f.ready() && f.failed == nil && !f.log.unclear && f.tables.broken == nil
	if known && !f.clean && !f.noSync && f.checkFile() == nil {
		_, _ = f.handle.WriteAt(f.cleanWord().bytes(), f.cleanPlace())
	}
}

// unclean takes the clean word back.
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
