package lockd_test

import (
	"bytes"
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

	mu     sync.Mutex // protects what follows
	synced []byte     // nil: nothing was synced yet
	spare  []byte
	tables bool          // bbolt has begun a commit
	left   int           // syncs until the cut; 0: there is none
	told   func() uint64 // the last index that was told of
	cut    *cutContent
}

// cutContent is a file as it is after a cut.
type cutContent struct {
	content []byte
	synced  []byte // what of it is on disk
	told    uint64 // the last index that was told of before
	killed  bool   // the power stayed on
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
func (d *powerDisk) arm(sync int, told func() uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left, d.told, d.cut = sync, told, nil
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
	content, err := readInto(d.spare, d.path)
	if err != nil {
		return err
	}
	if d.left > 0 && d.synced != nil {
		if d.left--; d.left == 0 {
			d.cut = d.leave(content)
			d.cut.told = d.told()
		}
	}
	d.spare, d.synced, d.tables = d.synced, content, false
	return nil
}

// readInto reads the file, into that memory if there is enough of it.
func readInto(spare []byte, path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size := int(info.Size())
	if cap(spare) < size {
		spare = make([]byte, size+size/4)
	}
	_, err = f.ReadAt(spare[:size], 0)
	return spare[:size], err
}

// leave cuts the power while that is being written.
func (d *powerDisk) leave(content []byte) *cutContent {
	metas := 2 * os.Getpagesize()
	// A file that grows has its new length first.
	synced := append(bytes.Clone(d.synced), make([]byte, max(0, len(content)-len(d.synced)))...)
	written := append(bytes.Clone(content), make([]byte, max(0, len(synced)-len(content)))...)
	how := "cut in a record"
	if d.tables && !bytes.Equal(synced[:metas], written[:metas]) {
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
	share := d.chance.IntN(5) // from none of the sectors to all
	for at := 0; at < len(synced); at += sectorSize {
		end := at + sectorSize
		if d.chance.IntN(4) < share && !bytes.Equal(synced[at:end], written[at:end]) {
			copy(synced[at:end], written[at:])
		}
	}
	return &cutContent{content: synced, synced: bytes.Clone(synced), how: how}
}
