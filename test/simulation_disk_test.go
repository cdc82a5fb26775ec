package lockd_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
)

// powerDisk is a disk of which the power can be cut. What is on it is the file as it was at its
// last sync; what was written since is in the system's memory, and a cut leaves any of its sectors.
//
// It sees the file when all is written that a sync is for. That is a record of the log, or a commit
// of bbolt's, which syncs its pages before it writes its meta page: so a cut in that has some of
// the pages, or all of them and the meta page or not.
type powerDisk struct {
	path   string
	chance *rand.Rand

	mu     sync.Mutex    // protects what follows
	synced []byte        // nil: all that is in the file
	tables bool          // bbolt has begun a commit
	bolt   bool          // the last sync was one of bbolt's
	logged bool          // the last commit went to the log
	fails  bool          // the next sync that is none of bbolt's fails
	failed []uint64      // the indexes of the commits whose sync did, until a sync has not
	left   int           // syncs until the cut; 0: there is none
	told   func() uint64 // the last index that was told of
	cut    *cutContent
}

// cutContent is a file as it is after a cut.
type cutContent struct {
	content []byte
	synced  []byte   // what of it is on disk; nil: all of it
	told    uint64   // the last index that was told of before
	failed  []uint64 // the indexes of commits that have failed and may be there all the same
	killed  bool     // the power stayed on
	how     string
}

// sectorSize is what a disk writes whole or not at all.
const sectorSize = 512

func newPowerDisk(path string, seed uint64) *powerDisk {
	return &powerDisk{path: path, chance: rand.New(rand.NewPCG(seed, 1))}
}

// next is a disk with another file. Nil synced means that all of it is on disk.
func (d *powerDisk) next(path string, synced []byte) *powerDisk {
	return &powerDisk{path: path, chance: d.chance, synced: synced}
}

// arm has the power cut in the sync of that number.
func (d *powerDisk) arm(sync int, told func() uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left, d.told, d.cut = sync, told, nil
	return d.know()
}

// know reads what is on disk, if that is all that is in the file.
func (d *powerDisk) know() (err error) {
	if d.synced == nil {
		d.synced, err = os.ReadFile(d.path)
	}
	return err
}

// disarm takes the cut back.
func (d *powerDisk) disarm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = 0
}

// failSync has the sync fail of the commit that is about to be written, with that index, if the
// commit is expected to go to the log: of a commit of bbolt's it would not be known whether it is
// in the file. It reports whether the sync is to fail, which is left to chance.
func (d *powerDisk) failSync(index uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.logged || d.chance.IntN(2) == 0 || d.know() != nil {
		return false
	}
	d.fails, d.failed = true, append(d.failed, index)
	return true
}

// taken returns what the cut has left, nil if it is yet to come.
func (d *powerDisk) taken() *cutContent {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cut
}

// changed is called when a commit of bbolt's begins to write.
func (d *powerDisk) changed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tables = true
}

// sync is called when all is written that is to be on disk.
func (d *powerDisk) sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.synced
	if d.synced = nil; d.fails || d.left > 0 {
		content, err := os.ReadFile(d.path)
		if err != nil {
			return err
		}
		if was == nil { // the cut was in a sync before, of the same commit
			was = bytes.Clone(content)
		}
		switch {
		case d.fails && !ofBolt(was, content):
			d.fails = false
			d.synced, content = sameSize(was, content)
			d.write(d.synced, content)
			return errors.New("an error of the disk")
		case d.left == 1:
			d.cut = d.leave(was, content)
			d.cut.told, d.cut.failed = d.told(), d.failed
		default:
			d.synced = content
		}
		d.left = max(0, d.left-1)
	}
	d.failed, d.bolt, d.tables = nil, d.tables, false
	return nil
}

// committed is called when a commit is in the file.
func (d *powerDisk) committed() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.logged = !d.bolt; d.fails {
		return errors.New("the commit whose sync was to fail did not go to the log")
	}
	return nil
}

// ofBolt reports whether a commit of bbolt's is between the two: it writes a meta page. That such a
// commit has begun does not tell, for a record may be written first.
func ofBolt(was, content []byte) bool {
	metas := 2 * os.Getpagesize()
	return !bytes.Equal(was[:metas], content[:metas])
}

// sameSize makes both as long as the longer one. A file that grows has its new length first.
func sameSize(a, b []byte) ([]byte, []byte) {
	return append(a, make([]byte, max(0, len(b)-len(a)))...),
		append(b, make([]byte, max(0, len(a)-len(b)))...)
}

// write writes some of the sectors in which the content differs.
func (d *powerDisk) write(to, content []byte) {
	share := d.chance.IntN(5) // from none of the sectors to all
	for at := 0; at < len(to); at += sectorSize {
		end := at + sectorSize
		if d.chance.IntN(4) < share && !bytes.Equal(to[at:end], content[at:end]) {
			copy(to[at:end], content[at:])
		}
	}
}

// leave cuts the power while that is being written, where the other is on disk.
func (d *powerDisk) leave(synced, content []byte) *cutContent {
	metas := 2 * os.Getpagesize()
	synced, written := sameSize(synced, content)
	how := "cut in a record"
	if ofBolt(synced, written) {
		if d.chance.IntN(3) > 0 {
			how = "cut in pages"
			copy(written[:metas], synced)
		} else {
			how = "cut before a meta page"
			copy(synced[metas:], written[metas:])
		}
	}
	if d.chance.IntN(4) == 0 {
		return &cutContent{content: written, synced: synced, killed: true, how: how}
	}
	d.write(synced, written)
	return &cutContent{content: synced, how: how}
}
