package file

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"github.com/lockd/lockd/store/internal/format"
	"iter"
	"slices"
)

// bbolt follows what a page says of another without end, and has no checksum of either. So before
// it does, inspect walks the whole tree by plain reads: every page is where the one above it says,
// is filled as bbolt fills it, without a gap, and is reached once. Then a walk of bbolt's ends, and
// finds all rows; what a row says is for its own checksum.

// What the format of bbolt's says of the pages of a tree.
const (
	branchFlag  = 0x01
	leafFlag    = 0x02
	elementSize = 16   // bytes of what precedes the keys, for each of them
	bucketFlag  = 0x01 // of an element of a leaf: its value is a bucket
	bucketSize  = 16   // bytes of a bucket: the number of its root page, or 0, and a sequence
	deepest     = 64   // pages from a root to a leaf, far more than there can be
)

// pagesAhead is how many pages are read at a time, where they lie one behind the other.
const pagesAhead = 16

// pageWalk goes through the pages of one file.
type pageWalk struct {
	from *beginning
	meta metaPage
	used []bool    // by page: it was reached, or is free
	runs []pageRun // by depth: with the page that is being walked

	chunk format.Chunk // to be used again
}

// pageRun is pages that lie one behind the other, in memory to be used again.
type pageRun struct {
	first   uint64
	content []byte
}

// bucket is a bucket as the leaf has it in which it is.
type bucket struct {
	name  string
	value []byte
	leaf  uint64 // the page where that is
}

// root is its root page; 0: it is a leaf in the value.
func (b bucket) root() uint64 { return binary.NativeEndian.Uint64(b.value) }

// bounds are the keys that a page may have: the first is the least, and all are below the limit.
// Nil means that there is no such bound.
type bounds struct{ least, limit []byte }

// element is one entry of a page, with which it shares its memory.
type element struct {
	key   []byte
	child uint64 // in a branch
	flags uint32 // in a leaf: bucketFlag, if the value is a bucket, or 0
	value []byte // in a leaf
}

// leafVisitor is called with each leaf and its depth in the file. The content is valid until the
// call returns.
type leafVisitor func(leaf uint64, depth int, content []byte) error

func misplaced(page uint64, what string) error {
	return fmt.Errorf("%w: page %d %s", format.ErrCorrupt, page, what)
}

// claim marks the pages as used, and refuses those that are already.
func (w *pageWalk) claim(first, count uint64) error {
	if first < firstPage || first >= w.meta.highWater || count > w.meta.highWater-first {
		return misplaced(first, "is not one of the file")
	}
	for page := first; page < first+count; page++ {
		if w.used[page] {
			return misplaced(page, "is used twice, or both used and free")
		}
		w.used[page] = true
	}
	return nil
}

// walk checks the tree below the page, at that depth, and calls visit for what its leaves have, in
// order. As many pages as ahead says are to be read from there on.
func (w *pageWalk) walk(page uint64, in bounds, depth, ahead int, visit leafVisitor) error {
	if page < firstPage || page >= w.meta.highWater {
		return misplaced(page, "is not one of the file")
	}
	if depth == deepest {
		return misplaced(page, "is too deep in its tree")
	}
	content, err := w.read(page, depth, ahead)
	if err != nil {
		return err
	}
	if elementCount(content) == 0 && page != w.meta.root { // bbolt keeps no such page
		return misplaced(page, "has nothing in it")
	}
	end, err := inspectElements(page, content, in)
	if err != nil {
		return err
	}
	if pageKind(content) == branchFlag {
		return w.walkBranch(content, in, depth, visit)
	}
	return visit(page, depth, content[:end])
}

// read returns the content of the page and of those that belong to it, and claims them. It is valid
// until another page of the same depth is read.
func (w *pageWalk) read(page uint64, depth, ahead int) ([]byte, error) {
	for depth >= len(w.runs) {
		w.runs = append(w.runs, pageRun{})
	}
	size := uint64(w.meta.pageSize)
	content, err := w.readRun(page, depth, uint64(ahead))
	if err != nil {
		return nil, err
	}
	order := binary.NativeEndian
	if order.Uint64(content) != page {
		return nil, misplaced(page, "has the number of another one")
	}
	count := 1 + uint64(order.Uint32(content[12:]))
	if err := w.claim(page, count); err != nil {
		return nil, err
	}
	if count*size > uint64(len(content)) {
		w.runs[depth].content = w.runs[depth].content[:0]
		if content, err = w.readRun(page, depth, count); err != nil {
			return nil, err
		}
	}
	return content[:count*size], nil
}

// readRun returns the content of the page, and of so many pages in all as far as there are.
func (w *pageWalk) readRun(page uint64, depth int, count uint64) ([]byte, error) {
	run, size := &w.runs[depth], uint64(w.meta.pageSize)
	if known := uint64(len(w.from.first)); (page+count)*size <= known {
		return w.from.first[page*size : (page+count)*size], nil
	}
	if at := (page - run.first) * size; page >= run.first && at < uint64(len(run.content)) {
		return run.content[at:], nil
	}
	count = min(count, w.meta.highWater-page)
	content := slices.Grow(run.content[:0], int(count*size))[:count*size]
	if _, err := w.from.ReadAt(content, int64(page*size)); err != nil {
		return nil, cause(err)
	}
	run.first, run.content = page, content
	return content, nil
}

func (w *pageWalk) walkBranch(content []byte, in bounds, depth int, visit leafVisitor) error {
	count := elementCount(content)
	for i, run := 0, 0; i < count; i++ {
		e := elementAt(content, i)
		below := bounds{e.key, in.limit}
		if i+1 < count {
			below.limit = elementAt(content, i+1).key
		}
		if i >= run { // how many of the pages lie one behind the other
			run = i + 1
			for run < count && run < i+pagesAhead &&
				elementAt(content, run).child == e.child+uint64(run-i) {
				run++
			}
		}
		if err := w.walk(e.child, below, depth+1, run-i, visit); err != nil {
			return err
		}
	}
	return nil
}

// walkRoot checks the root bucket, and returns the buckets in it.
func (w *pageWalk) walkRoot() (found []bucket, err error) {
	found = make([]bucket, 0, format.TableCount+1+segments) // as many as a file of ours has
	err = w.walk(w.meta.root, bounds{}, 0, 1, func(leaf uint64, _ int, content []byte) error {
		for e := range innerBuckets(bytes.Clone(content)) {
			found = append(found, bucket{format.StringOf(e.key), e.value, leaf})
		}
		return nil
	})
	return found, err
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

// checkTally refuses a number of rows for which a file has no room.
func (w *pageWalk) checkTally(f *found) {
	size := w.meta.highWater * uint64(w.meta.pageSize)
	if rows := f.last.tally.Rows; f.err == nil && rows > size/leastRow {
		f.err = fmt.Errorf("%w: its last commit left %d rows, and it has %d bytes",
			format.ErrCorrupt,
			rows, size)
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
				f.err = fmt.Errorf("%w: %.100q of %s is not a row", format.ErrCorrupt, e.key,
					format.TableName(table))
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

// walkBucket checks a bucket, which is a tree of its own, or a leaf in the value.
func (w *pageWalk) walkBucket(b bucket, depth int, visit leafVisitor) error {
	if len(b.value) < bucketSize {
		return misplaced(b.leaf, "has a bucket that is cut off")
	}
	if b.root() != 0 {
		return w.walk(b.root(), bounds{}, depth, 1, visit)
	}
	inline := b.value[bucketSize:]
	if len(inline) < headSize || pageKind(inline) != leafFlag || depth == deepest {
		return misplaced(b.leaf, "has a bucket that is not one")
	}
	end, err := inspectElements(b.leaf, inline, bounds{})
	switch {
	case err != nil:
		return err
	case end != uint64(len(inline)):
		return misplaced(b.leaf, "has a bucket that is not filled as it should be")
	}
	return visit(b.leaf, depth, inline)
}

// walkBuckets is a leafVisitor that checks the buckets in a bucket.
func (w *pageWalk) walkBuckets(leaf uint64, depth int, content []byte) error {
	for e := range innerBuckets(content) {
		err := w.walkBucket(bucket{"", e.value, leaf}, depth+1, w.walkBuckets)
		if err != nil {
			return err
		}
	}
	return nil
}

func pageKind(content []byte) uint16 { return binary.NativeEndian.Uint16(content[8:]) }

func elementCount(content []byte) int { return int(binary.NativeEndian.Uint16(content[10:])) }

// inspectElements refuses a branch or leaf page that bbolt did not write: it writes the elements,
// and then key and value of each, one behind the other, up to the end, which is returned.
func inspectElements(page uint64, content []byte, in bounds) (end uint64, err error) {
	kind, count := pageKind(content), elementCount(content)
	if kind != branchFlag && kind != leafFlag {
		return 0, misplaced(page, "is neither a branch nor a leaf")
	}
	next := headSize + uint64(count)*elementSize // where the next key has to be
	if next > uint64(len(content)) {
		return 0, misplaced(page, "has more in it than it has room for")
	}
	var last []byte
	for i := range count {
		position, keySize, valueSize := extent(content, kind, i)
		if position != next || keySize == 0 || keySize+valueSize > uint64(len(content))-next {
			return 0, misplaced(page, "is not filled as it should be")
		}
		key := content[next : next+keySize]
		next += keySize + valueSize
		switch {
		case kind == leafFlag && elementFlags(content, i)&^bucketFlag != 0:
			return 0, misplaced(page, "has an element of an unknown kind")
		case i == 0 && in.least != nil && !bytes.Equal(key, in.least):
			// By its first key bbolt finds what to replace in the page above.
			return 0, misplaced(page, "does not begin with the key that the page above it has")
		case bytes.Compare(key, last) <= 0,
			in.limit != nil && bytes.Compare(key, in.limit) >= 0:
			return 0, misplaced(page, fmt.Sprintf("has %.100q out of its place", key))
		}
		last = key
	}
	return next, nil
}

// innerBuckets yields the elements of a leaf that are buckets.
func innerBuckets(content []byte) iter.Seq[element] {
	return func(yield func(element) bool) {
		for i := range elementCount(content) {
			if elementFlags(content, i) == bucketFlag && !yield(elementAt(content, i)) {
				return
			}
		}
	}
}

// extent returns where the key of an element begins, and how long key and value are; a branch has
// no values.
func extent(content []byte, kind uint16, i int) (position, keySize, valueSize uint64) {
	order := binary.NativeEndian
	start := uint64(headSize + i*elementSize)
	raw := content[start : start+elementSize]
	if kind == branchFlag {
		return start + uint64(order.Uint32(raw)), uint64(order.Uint32(raw[4:])), 0
	}
	return start + uint64(order.Uint32(raw[4:])), uint64(order.Uint32(raw[8:])),
		uint64(order.Uint32(raw[12:]))
}

// elementFlags returns what kind of element is in a leaf.
func elementFlags(content []byte, i int) uint32 {
	return binary.NativeEndian.Uint32(content[headSize+i*elementSize:])
}

// elementAt takes an element out of a page whose extent is known to be right.
func elementAt(content []byte, i int) element {
	order := binary.NativeEndian
	raw := content[headSize+i*elementSize:]
	kind := pageKind(content)
	position, keySize, valueSize := extent(content, kind, i)
	end := position + keySize
	e := element{key: content[position:end], value: content[end : end+valueSize]}
	if kind == branchFlag {
		e.child = order.Uint64(raw[8:])
	} else {
		e.flags = order.Uint32(raw)
	}
	return e
}
