package file

import (
	"io/fs"
	"slices"

	"github.com/lockd/lockd/store/internal/format"
)

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

// chunkOf returns the rows of a leaf, which share its memory, until it is called again.
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
	// begin is called before the first row, with what the last commit left. Rows that were taken
	// before do not count.
	Begin(index uint64, left format.Tally)

	// rows is called with all rows, table by table and in the order of the keys; those of the log
	// are in their places. The chunk is valid until it returns, and not to be changed.
	Rows(table byte, c *format.Chunk)

	// end is called after the last row, and returns what is wrong with any of them.
	End() error
}
