package file

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// What bbolt's format says of the pages of a tree.
const (
	branchFlag  = 0x01
	leafFlag    = 0x02
	elementSize = 16   // bytes of what precedes the keys, for each of them
	bucketFlag  = 0x01 // of an element of a leaf: its value is a bucket
	bucketSize  = 16   // bytes of a bucket: the number of its root page, or 0, and a sequence
	deepest     = 64   // pages from a root to a leaf, far more than there can be
)

// element is one entry of a page, with which it shares its memory.
type element struct {
	key   []byte
	child uint64 // in a branch
	flags uint32 // in a leaf: bucketFlag, if the value is a bucket, or 0
	value []byte // in a leaf
}

func misplaced(page uint64, what string) error {
	return corrupt("page %d %s", page, what)
}

func pageNumber(content []byte) uint64 { return binary.NativeEndian.Uint64(content) }

func pageKind(content []byte) uint16 { return binary.NativeEndian.Uint16(content[8:]) }

func elementCount(content []byte) int { return int(binary.NativeEndian.Uint16(content[10:])) }

// pageOverflow returns how many more pages belong to the page, as it says.
func pageOverflow(content []byte) uint64 { return uint64(binary.NativeEndian.Uint32(content[12:])) }

// bounds are what the page above says of the keys of a page: the first key is least, and all keys
// are below limit. A nil field says nothing.
type bounds struct{ least, limit []byte }

// inspectElements refuses a branch or leaf page that bbolt did not write. bbolt writes the
// elements, and then the key and the value of each, without a gap. inspectElements returns where
// they end.
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
			// By the page's first key bbolt finds what to replace in the page above.
			return 0, misplaced(page, "does not begin with the key that the page above it has")
		case bytes.Compare(key, last) <= 0,
			in.limit != nil && bytes.Compare(key, in.limit) >= 0:
			return 0, misplaced(page, fmt.Sprintf("has %.100q out of its place", key))
		}
		last = key
	}
	return next, nil
}

// extent returns where the key of an element begins, and the lengths of the key and the value; a
// branch has no values.
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
	kind := pageKind(content)
	position, keySize, valueSize := extent(content, kind, i)
	end := position + keySize
	e := element{key: content[position:end], value: content[end : end+valueSize]}
	if kind == branchFlag {
		e.child = binary.NativeEndian.Uint64(content[headSize+i*elementSize+8:])
	} else {
		e.flags = elementFlags(content, i)
	}
	return e
}
