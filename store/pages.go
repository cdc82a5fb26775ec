package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
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

// pageWalk goes through the pages of one file.
type pageWalk struct {
	file    *os.File
	meta    metaPage
	used    []bool   // by page: it was reached, or is free
	content [][]byte // by depth: the page that is being walked, in memory to be used again
}

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
	content, err := w.read(page, depth)
	if err != nil {
		return err
	}
	if _, err := inspectElements(page, content, in); err != nil {
		return err
	}
	switch {
	case elementCount(content) == 0 && page != w.meta.root: // bbolt keeps no such page
		return misplaced(page, "has nothing in it")
	case in.least != nil && !bytes.Equal(elementAt(content, 0).key, in.least):
		// By its first key bbolt finds what to replace in the page above.
		return misplaced(page, "does not begin with the key that the page above it has")
	case pageKind(content) == branchFlag:
		return w.walkBranch(content, in, depth)
	}
	return w.walkBuckets(page, content, depth)
}

// read returns the content of the page and of those that belong to it, and claims them. It is valid
// until another page of the same depth is read.
func (w *pageWalk) read(page uint64, depth int) ([]byte, error) {
	if depth == len(w.content) {
		w.content = append(w.content, nil)
	}
	size := uint64(w.meta.pageSize)
	content := slices.Grow(w.content[depth][:0], int(size))[:size]
	if _, err := w.file.ReadAt(content, int64(page*size)); err != nil {
		return nil, cause(err)
	}
	order := binary.NativeEndian
	if order.Uint64(content) != page {
		return nil, misplaced(page, "has the number of another one")
	}
	count := 1 + uint64(order.Uint32(content[12:]))
	if err := w.claim(page, count); err != nil {
		return nil, err
	}
	if count > 1 {
		content = slices.Grow(content, int((count-1)*size))[:count*size]
		if _, err := w.file.ReadAt(content[size:], int64((page+1)*size)); err != nil {
			return nil, cause(err)
		}
	}
	w.content[depth] = content
	return content, nil
}

func (w *pageWalk) walkBranch(content []byte, in bounds, depth int) error {
	count := elementCount(content)
	for i := range count {
		e := elementAt(content, i)
		below := bounds{e.key, in.limit}
		if i+1 < count {
			below.limit = elementAt(content, i+1).key
		}
		if err := w.walk(e.child, below, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// walkBuckets checks the buckets in a leaf: each is a tree of its own, or a leaf in the value.
func (w *pageWalk) walkBuckets(page uint64, content []byte, depth int) error {
	order := binary.NativeEndian
	for i := range elementCount(content) {
		e := elementAt(content, i)
		if e.flags != bucketFlag {
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
		if len(inline) < headSize || pageKind(inline) != leafFlag || depth == deepest {
			return misplaced(page, "has a bucket that is not one")
		}
		end, err := inspectElements(page, inline, bounds{})
		if err != nil {
			return err
		}
		if end != uint64(len(inline)) {
			return misplaced(page, "has a bucket that is not filled as it should be")
		}
		if err := w.walkBuckets(page, inline, depth+1); err != nil {
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
		position, keySize, valueSize := extent(content, i)
		if position != next || keySize == 0 || keySize+valueSize > uint64(len(content))-next {
			return 0, misplaced(page, "is not filled as it should be")
		}
		e := elementAt(content, i)
		if kind == leafFlag && e.flags != 0 && e.flags != bucketFlag {
			return 0, misplaced(page, "has an element of an unknown kind")
		}
		next += keySize + valueSize
		if bytes.Compare(e.key, last) <= 0 ||
			in.limit != nil && bytes.Compare(e.key, in.limit) >= 0 {
			return 0, misplaced(page, fmt.Sprintf("has %.100q out of its place", e.key))
		}
		last = e.key
	}
	return next, nil
}

// extent returns where the key of an element begins, and how long key and value are; a branch has
// no values.
func extent(content []byte, i int) (position, keySize, valueSize uint64) {
	order := binary.NativeEndian
	start := uint64(headSize + i*elementSize)
	raw := content[start:]
	if pageKind(content) == branchFlag {
		return start + uint64(order.Uint32(raw)), uint64(order.Uint32(raw[4:])), 0
	}
	return start + uint64(order.Uint32(raw[4:])), uint64(order.Uint32(raw[8:])),
		uint64(order.Uint32(raw[12:]))
}

// elementAt takes an element out of a page whose extent is known to be right.
func elementAt(content []byte, i int) element {
	order := binary.NativeEndian
	raw := content[headSize+i*elementSize:]
	position, keySize, valueSize := extent(content, i)
	end := position + keySize
	e := element{key: content[position:end], value: content[end : end+valueSize]}
	if pageKind(content) == branchFlag {
		e.child = order.Uint64(raw[8:])
	} else {
		e.flags = order.Uint32(raw)
	}
	return e
}
