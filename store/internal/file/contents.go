package file

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"slices"

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

// inspect returns ErrCorrupt or [ErrFormat] if bbolt must not open the file. It gives the content
// of the file to the reader, unless the reader is nil. If the caller does not have the file's lock,
// an error, or what was found, may be the effect of a commit that runs meanwhile.
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
	found, err := w.walkFile(reader)
	found.info, found.meta = info, meta
	return found, err
}

var errFreelist = corrupt("its list of free pages is not one")

// claimFreelist refuses a list of free pages that bbolt did not write. It claims the pages of the
// list and the pages that the list names. The list has no checksum, and with a wrong list bbolt
// would overwrite pages that are in use.
func (w *pageWalk) claimFreelist() error {
	f, meta := w.from, w.meta
	offset := int64(meta.freelist) * int64(meta.pageSize)
	room := (meta.highWater - meta.freelist) * uint64(meta.pageSize)
	var head [headSize + numberSize]byte
	if _, err := f.ReadAt(head[:], offset); err != nil {
		return cause(err)
	}
	order := binary.NativeEndian
	offset, room = offset+headSize, room-headSize
	length := uint64(order.Uint16(head[10:]))
	if length == manyFree {
		length = order.Uint64(head[headSize:])
		offset, room = offset+numberSize, room-numberSize
	}
	if order.Uint64(head[0:]) != meta.freelist || order.Uint16(head[8:]) != freelistFlag ||
		length > room/numberSize {
		return errFreelist
	}
	if err := w.claim(meta.freelist, 1+uint64(order.Uint32(head[12:]))); err != nil {
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
	err  error // not nil: these are not the rows of a store, or the reader has refused one
}

// walkFile checks all trees, and gives the rows in them to the reader, unless that is nil.
func (w *pageWalk) walkFile(reader Reader) (f found, err error) {
	buckets, err := w.walkRoot()
	if err == nil {
		err = w.walkHeader(&f, &buckets)
	}
	if err == nil {
		err = w.walkLog(&f, &buckets)
		w.checkTally(&f)
	}
	if err == nil && reader != nil {
		buckets, err = w.walkTables(&f, buckets, reader)
	}
	for i := 0; i < len(buckets) && err == nil; i++ {
		err = w.walkBucket(buckets[i], 0, w.walkBuckets)
	}
	return f, err
}

// walkTables walks the tables, and returns the other buckets.
func (w *pageWalk) walkTables(
	f *found, buckets []bucket, reader Reader,
) (others []bucket, err error) {
	if f.err == nil {
		reader.Begin(f.last.index, f.last.tally)
		if log := f.log.list(nil); len(log) > 0 {
			reader = &merging{Reader: reader, log: log}
		}
	}
	for table := range format.TableCount {
		if err := w.walkTable(f, &buckets, table, reader); err != nil {
			return nil, err
		}
	}
	if f.err == nil {
		f.err = reader.End()
	}
	return buckets, nil
}

// walkHeader walks the header's bucket.
func (w *pageWalk) walkHeader(f *found, buckets *[]bucket) (err error) {
	var value []byte
	if b, ok := take(buckets, format.HeaderBucket); ok {
		err = w.walkBucket(b, 0, func(leaf uint64, depth int, content []byte) error {
			for i := range elementCount(content) {
				e := elementAt(content, i)
				if e.flags != bucketFlag && string(e.key) == headerKey {
					value = append([]byte{}, e.value...)
				}
			}
			return w.walkBuckets(leaf, depth, content)
		})
	}
	f.last, f.err = headerOf(value, w.meta.commit)
	return err
}

// walkLog walks the buckets of the log's segments, and reads what they have.
func (w *pageWalk) walkLog(f *found, buckets *[]bucket) error {
	var scans []*scan
	for number := range byte(segments) {
		b, ok := take(buckets, string(segmentName(number)))
		if f.err == nil && ok != (f.last.log.made != 0) {
			f.err = corrupt("its header does not fit its log")
		}
		if !ok {
			continue
		}
		// At depths of their own, so that the pages of both stay in memory.
		err := w.walkBucket(b, int(number), func(leaf uint64, depth int, content []byte) error {
			if f.err == nil {
				scans, f.err = w.scanSegment(scans, number, b.root(), content)
			}
			return w.walkBuckets(leaf, depth, content)
		})
		if err != nil {
			return err
		}
	}
	if f.err == nil && len(scans) == segments {
		f.last, f.err = f.log.replay(scans, f.last)
	}
	return nil
}

func (w *pageWalk) scanSegment(
	scans []*scan, number byte, root uint64, content []byte,
) ([]*scan, error) {
	s, err := newSegment(number, root, int(w.meta.pageSize), content)
	if err != nil {
		return scans, corrupt("segment %d of its log: %w", number, err)
	}
	c := newScan(s, content[:(lanes*s.stride-1)*sectorSize])
	return append(scans, c), c.check()
}

// checkTally refuses a number of rows for which a file has no room.
func (w *pageWalk) checkTally(f *found) {
	size := w.meta.highWater * uint64(w.meta.pageSize)
	if rows := f.last.tally.Rows; f.err == nil && rows > size/leastRow {
		f.err = corrupt("its last commit left %d rows, and it has %d bytes", rows, size)
	}
}

// walkTable walks a table's bucket, and gives the rows in it to the reader.
func (w *pageWalk) walkTable(f *found, buckets *[]bucket, table byte, reader Reader) error {
	b, ok := take(buckets, format.TableName(table))
	if !ok {
		if f.err == nil {
			f.err = errNoTable(table)
		}
		return nil
	}
	return w.walkBucket(b, 0, func(leaf uint64, depth int, content []byte) error {
		for e := range innerBuckets(content) {
			if f.err == nil {
				f.err = corrupt("%.100q of %s is not a row", e.key, format.TableName(table))
			}
		}
		if f.err == nil && elementCount(content) > 0 {
			reader.Rows(table, w.chunkOf(content))
		}
		return w.walkBuckets(leaf, depth, content)
	})
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

// take takes the bucket of that name out of the list.
func take(buckets *[]bucket, name string) (taken bucket, ok bool) {
	at := slices.IndexFunc(*buckets, func(b bucket) bool { return b.name == name })
	if at < 0 {
		return bucket{}, false
	}
	taken = (*buckets)[at]
	*buckets = slices.Delete(*buckets, at, at+1)
	return taken, true
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
