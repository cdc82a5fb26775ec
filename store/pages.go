package store

import (
	"encoding/binary"
	"fmt"
	"os"
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

// pageWalk goes through the pages of one file.
type pageWalk struct {
	file *os.File
	meta metaPage
	used []bool // by page: it was reached, or is free
}

// bounds are the keys that a page has: from the least on, which is there, and below the limit. For
// the first page of a tree there is no least one, and for the last there is no limit.
type bounds struct {
	least, limit string
	limited      bool
}

// element is one entry of a page.
type element struct {
	key    string
	child  uint64 // in a branch
	bucket bool   // in a leaf: value is a bucket
	value  []byte // shares memory with the page
}

func misplaced(page uint64, what string) error {
	return fmt.Errorf("%w: page %d %s", ErrCorrupt, page, what)
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

// walk checks the tree below the page, and the trees of the buckets in it.
func (w *pageWalk) walk(page uint64, in bounds, depth int) error {
	if page < firstPage || page >= w.meta.highWater {
		return misplaced(page, "is not one of the file")
	}
	if depth == deepest {
		return misplaced(page, "is too deep in its tree")
	}
	size := uint64(w.meta.pageSize)
	var head [headSize]byte
	if _, err := w.file.ReadAt(head[:], int64(page*size)); err != nil {
		return cause(err)
	}
	order := binary.NativeEndian
	count := 1 + uint64(order.Uint32(head[12:]))
	if order.Uint64(head[:]) != page {
		return misplaced(page, "has the number of another one")
	}
	if err := w.claim(page, count); err != nil {
		return err
	}
	content := make([]byte, count*size)
	if _, err := w.file.ReadAt(content, int64(page*size)); err != nil {
		return cause(err)
	}
	list, _, err := elements(page, content, in)
	switch {
	case err != nil:
		return err
	case len(list) == 0 && page != w.meta.root: // bbolt keeps no such page
		return misplaced(page, "has nothing in it")
	case in.least != "" && list[0].key != in.least:
		// By its first key bbolt finds what to replace in the page above.
		return misplaced(page, "does not begin with the key that the page above it has")
	}
	if order.Uint16(content[8:]) == branchFlag {
		return w.walkBranch(list, in, depth)
	}
	return w.walkBuckets(page, list, depth)
}

func (w *pageWalk) walkBranch(list []element, in bounds, depth int) error {
	for i, e := range list {
		below := bounds{e.key, in.limit, in.limited}
		if i+1 < len(list) {
			below.limit, below.limited = list[i+1].key, true
		}
		if err := w.walk(e.child, below, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// walkBuckets checks the buckets in a leaf: each is a tree of its own, or a leaf in the value.
func (w *pageWalk) walkBuckets(page uint64, list []element, depth int) error {
	order := binary.NativeEndian
	for _, e := range list {
		if !e.bucket {
			continue
		}
		if len(e.value) < bucketSize {
			return misplaced(page, "has a bucket that is cut off")
		}
		if root := order.Uint64(e.value); root != 0 {
			if err := w.walk(root, bounds{}, depth+1); err != nil {
				return err
			}
			continue
		}
		inline := e.value[bucketSize:]
		if len(inline) < headSize || order.Uint16(inline[8:]) != leafFlag || depth == deepest {
			return misplaced(page, "has a bucket that is not one")
		}
		inner, end, err := elements(page, inline, bounds{})
		if err != nil {
			return err
		}
		if end != uint64(len(inline)) {
			return misplaced(page, "has a bucket that is not filled as it should be")
		}
		if err := w.walkBuckets(page, inner, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// elements takes a branch or leaf page apart. bbolt writes the elements, and then key and value
// of each, one behind the other, up to the end.
func elements(page uint64, content []byte, in bounds) (list []element, end uint64, err error) {
	order := binary.NativeEndian
	kind, count := order.Uint16(content[8:]), uint64(order.Uint16(content[10:]))
	if kind != branchFlag && kind != leafFlag {
		return nil, 0, misplaced(page, "is neither a branch nor a leaf")
	}
	next := headSize + count*elementSize // where the next key has to be
	if next > uint64(len(content)) {
		return nil, 0, misplaced(page, "has more in it than it has room for")
	}
	list = make([]element, count)
	for i := range list {
		e := &list[i]
		start := headSize + uint64(i)*elementSize
		raw := content[start:]
		var position, keySize, valueSize uint64
		if kind == branchFlag {
			position, keySize = uint64(order.Uint32(raw)), uint64(order.Uint32(raw[4:]))
			e.child = order.Uint64(raw[8:])
		} else {
			position, keySize = uint64(order.Uint32(raw[4:])), uint64(order.Uint32(raw[8:]))
			valueSize = uint64(order.Uint32(raw[12:]))
			e.bucket = order.Uint32(raw) == bucketFlag
			if !e.bucket && order.Uint32(raw) != 0 {
				return nil, 0, misplaced(page, "has an element of an unknown kind")
			}
		}
		if start+position != next || keySize == 0 ||
			keySize+valueSize > uint64(len(content))-next {
			return nil, 0, misplaced(page, "is not filled as it should be")
		}
		e.key = string(content[next : next+keySize])
		e.value = content[next+keySize : next+keySize+valueSize]
		next += keySize + valueSize
		if i > 0 && e.key <= list[i-1].key || in.limited && e.key >= in.limit {
			return nil, 0, misplaced(page, fmt.Sprintf("has %.100q out of its place", e.key))
		}
	}
	return list, next, nil
}
