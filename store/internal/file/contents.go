package file

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math"
	"os"

	"github.com/lockd/lockd/store/internal/format"
)

// bbolt maps the file into memory, and does not check its two meta pages and its list of free pages
// against the file. If they named a page that the file does not have, a signal would end the
// process; and a panic while bbolt opens the file would leave the file locked. So inspect reads
// them first.
//
// A commit of bbolt's writes one of the two meta pages, in turn, and only when all that the page
// names is in the file. So at any time, after any crash, one meta page is whole and valid, and the
// other is of the commit before it, or was half written by the commit after it. If the other is
// anything else, it may have been the newer one, of a commit that is durable: then the file is
// refused.

// inspect gives the content of the file to the reader. It returns ErrCorrupt or [ErrFormat] if
// bbolt must not open the file, if these are not the rows of a store, or if the reader has refused
// one. If the caller does not have the file's lock, an error, or what was found, may be the effect
// of a commit that runs meanwhile.
func inspect(file *os.File, reader Reader) (found, error) {
	meta, other, err := newestMeta(file)
	if err != nil {
		return found{}, err
	}
	// The length is read last: it only grows, and does so before a page that needs it is written.
	info, err := file.Stat()
	if err != nil {
		return found{}, cause(err)
	}
	if err := checkMappable(info.Size()); err != nil {
		return found{}, err
	}
	need := meta.highWater * uint64(meta.pageSize)
	switch pages := uint64(info.Size()) / uint64(meta.pageSize); {
	case meta.highWater > pages:
		return found{}, corrupt("it is cut off: it has %d bytes, and needs %d", info.Size(), need)
	case meta.freelist == noFreelist:
		return found{}, fmt.Errorf("%w: it was written by another program, "+
			"without its list of free pages; choose another path", ErrFormat)
	case meta.root >= meta.highWater, meta.freelist >= meta.highWater:
		return found{}, corrupt("its meta page names pages %d and %d of %d", meta.root,
			meta.freelist, meta.highWater)
	}
	if err := inspectPair(meta, other); err != nil {
		return found{}, err
	}
	w := &pageWalk{from: file, meta: meta, used: make([]bool, meta.highWater)}
	if err := w.claimFreelist(); err != nil {
		return found{}, err
	}
	f := found{info: info, meta: meta}
	if err = w.walkFile(&f, reader); err == nil {
		err = f.checkClosed(file)
	}
	return f, err
}

// checkMappable refuses a file that a program of 32 bits cannot map: there bbolt counts bytes in an
// int, and would take a file of 5 GiB for one of 1 GiB.
func checkMappable(size int64) error {
	if int64(int(size)) == size {
		return nil
	}
	return fmt.Errorf("%w: it has %d bytes, and a program of 32 bits can map %d of them at most; "+
		"open it with a program of 64 bits", ErrInvalid, size, math.MaxInt32)
}

// checkClosed returns ErrCorrupt if the file lacks what it had when it was closed.
func (f *found) checkClosed(file *os.File) error {
	w := lastClean(file, uint64(f.meta.pageSize))
	if w.commit > f.meta.commit || w.commit == f.meta.commit && w.next > f.log.next {
		return errLastLost
	}
	return nil
}

var errFreelist = corrupt("its list of free pages is not one")

// claimFreelist refuses a list of free pages that bbolt did not write. It claims the pages of the
// list and the pages that the list names. The list has no checksum, and with a wrong list bbolt
// would overwrite pages that are in use.
func (w *pageWalk) claimFreelist() error {
	f, meta := w.from, w.meta
	offset := int64(meta.freelist) * int64(meta.pageSize)
	room := (meta.highWater - meta.freelist) * uint64(meta.pageSize)
	head := make([]byte, headSize+numberSize)
	if _, err := f.ReadAt(head, offset); err != nil {
		return cause(err)
	}
	order := binary.NativeEndian
	offset, room = offset+headSize, room-headSize
	length := uint64(elementCount(head))
	if length == manyFree {
		length = order.Uint64(head[headSize:])
		offset, room = offset+numberSize, room-numberSize
	}
	if pageNumber(head) != meta.freelist || pageKind(head) != freelistFlag ||
		length > room/numberSize {
		return errFreelist
	}
	if err := w.claim(meta.freelist, 1+pageOverflow(head)); err != nil {
		return errFreelist
	}
	list := make([]byte, length*numberSize)
	if _, err := f.ReadAt(list, offset); err != nil {
		return cause(err)
	}
	least := uint64(firstPage)
	for ; len(list) > 0; list = list[numberSize:] {
		free := order.Uint64(list)
		if free < least || w.claim(free, 1) != nil {
			return errFreelist
		}
		least = free + 1
	}
	return nil
}

// found is what is in a file, beside the rows that the reader was given.
type found struct {
	info fs.FileInfo
	meta metaPage // the newest one
	last header
	log  commitLog
}

// walkFile checks all trees, and gives the rows in them to the reader.
func (w *pageWalk) walkFile(f *found, reader Reader) error {
	buckets, err := w.walkRoot()
	if err != nil {
		return err
	}
	if f.last, err = w.walkHeader(buckets); err != nil {
		return err
	}
	if err := w.walkLog(f, buckets); err != nil {
		return err
	}
	size := w.meta.highWater * uint64(w.meta.pageSize)
	if rows := f.last.tally.Rows; rows > size/leastRow {
		return corrupt("its last commit left %d rows, and it has %d bytes", rows, size)
	}
	if err := w.walkTables(f, buckets, reader); err != nil {
		return err
	}
	for name := range buckets {
		return fmt.Errorf("%w: its bucket %.100q is another program's; choose another path",
			ErrFormat, name)
	}
	return nil
}

// walkHeader walks the header's bucket.
func (w *pageWalk) walkHeader(buckets buckets) (header, error) {
	var value []byte
	if b, ok := buckets.take(format.HeaderBucket); ok {
		err := w.walkBucket(b, 0, func(_ uint64, content []byte) error {
			for e := range soundElements(content) {
				if e.flags != bucketFlag && string(e.key) == headerKey {
					value = bytes.Clone(e.value)
				}
			}
			return nil
		})
		if err != nil {
			return header{}, err
		}
	}
	return headerOf(value, w.meta.commit)
}

// walkLog walks the buckets of the log's segments, and reads what they have.
func (w *pageWalk) walkLog(f *found, buckets buckets) (err error) {
	var scans []*scan
	for number := range byte(segments) {
		b, ok := buckets.take(string(segmentName(number)))
		if ok != (f.last.log.made != 0) {
			return corrupt("its header does not fit its log")
		}
		if !ok {
			continue
		}
		// At depths of their own, so that the pages of both stay in memory.
		err := w.walkBucket(b, int(number), func(_ uint64, content []byte) error {
			s, err := segmentOf(number, b.root(), int(w.meta.pageSize), content)
			if err != nil {
				return err
			}
			c, err := newScan(s, content[:(lanes*s.stride-1)*sectorSize])
			scans = append(scans, c)
			return err
		})
		if err != nil {
			return err
		}
	}
	f.last, err = f.log.replay(scans, f.last)
	return err
}

// walkTables walks the tables, and gives the rows in them to the reader.
func (w *pageWalk) walkTables(f *found, buckets buckets, reader Reader) error {
	reader.Begin(f.last.index, f.last.tally)
	if log := f.log.list(nil); len(log) > 0 {
		reader = &merging{Reader: reader, log: log}
	}
	for table := range format.TableCount {
		b, ok := buckets.take(format.TableName(table))
		if !ok {
			return errNoTable(table)
		}
		err := w.walkBucket(b, 0, func(_ uint64, content []byte) error {
			for i := range elementCount(content) {
				if elementFlags(content, i) == bucketFlag {
					return corrupt("%.100q of %s is not a row", elementAt(content, i).key,
						format.TableName(table))
				}
			}
			if elementCount(content) > 0 {
				reader.Rows(table, w.chunkOf(content))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return reader.End()
}

// chunkOf returns the rows of a leaf, which share its memory. They are valid until the next call.
func (w *pageWalk) chunkOf(content []byte) *format.Chunk {
	count := elementCount(content)
	start := headSize + uint64(count)*elementSize
	w.chunk.Share(content[start:])
	for i := range count {
		at, keySize, _ := extent(content, leafFlag, i)
		w.chunk.Found(int(at-start), int(keySize))
	}
	return &w.chunk
}

// Reader takes the rows of a file.
type Reader interface {
	// Begin is called before the first row, with the header of the last commit. Rows that were
	// given before do not count.
	Begin(index uint64, left format.Tally)

	// Rows is called with all rows, table by table and in the order of the keys; the rows of the
	// log are in their places. The chunk is valid until Rows returns, and must not be changed.
	Rows(table byte, c *format.Chunk)

	// End is called after the last row, and returns what is wrong with any of the rows.
	End() error
}
