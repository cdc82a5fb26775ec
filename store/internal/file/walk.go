package file

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"

	"github.com/lockd/lockd/store/internal/format"
)

// bbolt follows the page numbers in a page without a limit, and its pages have no checksums. So
// before bbolt opens the file, inspect walks the whole tree by plain reads, and checks that every
// page is where the page above says, is filled as bbolt fills it, without a gap, and is reached
// once. Then a walk by bbolt ends, and finds all rows. The content of a row has its own checksum.

// pagesAhead is how many pages are read at a time, where they lie one behind the other.
const pagesAhead = 16

// pageWalk goes through the pages of one file.
type pageWalk struct {
	from *os.File
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

// bucket is a bucket as its leaf has it.
type bucket struct {
	value []byte
	leaf  uint64 // the page of that leaf
}

// buckets are buckets by name.
type buckets map[string]bucket

// take takes the bucket of that name out.
func (b buckets) take(name string) (taken bucket, ok bool) {
	taken, ok = b[name]
	delete(b, name)
	return taken, ok
}

// root returns the bucket's root page; 0: the bucket is a leaf in the value.
func (b bucket) root() uint64 { return binary.NativeEndian.Uint64(b.value) }

// inline returns the leaf in the value of a bucket without a root page, and what is wrong with it.
func (b bucket) inline() ([]byte, error) {
	content := b.value[bucketSize:]
	if len(content) < headSize || pageKind(content) != leafFlag {
		return content, misplaced(b.leaf, "has a bucket that is not one")
	}
	end, err := inspectElements(b.leaf, content, bounds{})
	if err == nil && end != uint64(len(content)) {
		err = misplaced(b.leaf, "has a bucket that is not filled as it should be")
	}
	return content, err
}

// leafVisitor is called with each leaf. The content is valid until the call returns.
type leafVisitor func(leaf uint64, content []byte) error

// claim marks the pages as used, and refuses those that are used already.
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

// walk checks the tree below the page, at that depth, and calls visit for its leaves, in order.
// ahead is how many pages to read at once from that page on.
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
	return visit(page, content[:end])
}

// read claims the page and the pages that belong to it. It returns their content, which is valid
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
	if pageNumber(content) != page {
		return nil, misplaced(page, "has the number of another one")
	}
	count := 1 + pageOverflow(content)
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

// readRun returns the content of the page and of those that follow, count pages in all or fewer.
func (w *pageWalk) readRun(page uint64, depth int, count uint64) ([]byte, error) {
	run, size := &w.runs[depth], uint64(w.meta.pageSize)
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
func (w *pageWalk) walkRoot() (buckets, error) {
	found := make(buckets)
	err := w.walk(w.meta.root, bounds{}, 0, 1, func(leaf uint64, content []byte) error {
		for e := range soundElements(bytes.Clone(content)) {
			if e.flags != bucketFlag {
				return misplaced(leaf, "has a row among the buckets")
			}
			found[string(e.key)] = bucket{e.value, leaf}
		}
		return nil
	})
	return found, err
}

// walkBucket checks a bucket, which is a tree of its own, or a leaf in the value.
func (w *pageWalk) walkBucket(b bucket, depth int, visit leafVisitor) error {
	if len(b.value) < bucketSize {
		return misplaced(b.leaf, "has a bucket that is cut off")
	}
	if b.root() != 0 {
		return w.walk(b.root(), bounds{}, depth, 1, visit)
	}
	content, err := b.inline()
	if err != nil {
		return err
	}
	return visit(b.leaf, content)
}
