package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// bbolt maps the file into memory and believes its two meta pages and its list of free pages:
// what they say of a page that the file does not have would end the process with a signal, and a
// panic while it opens the file would leave the file locked. inspect reads them first.
//
// A commit of bbolt's writes one of the two meta pages, in turn, and only when all that it speaks
// of is in the file. So at any time, after any crash, one of them is whole and true, and the other
// is of the commit before it, or half of the commit after it. If the other is anything else, it may
// have been the newer one, of a commit that is durable: then the file is refused.

// inspect returns [ErrCorrupt] or [ErrFormat] if bbolt must not be given the file, and gives what
// is in it to the reader, unless that is nil. Without the file's lock an error, and what was found,
// may be due to a commit that is going on.
func inspect(file *os.File, reader Reader) (found, error) {
	memory := beginnings.Get().(*[beginningSize]byte)
	defer beginnings.Put(memory)
	n, err := file.ReadAt(memory[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return found{}, cause(err)
	}
	f := &beginning{file, memory[:n]}
	meta, other, err := newestMeta(f)
	if err != nil {
		return found{}, err
	}
	// The length is read last: it only grows, and before a page that needs it is written.
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
	w := &pageWalk{from: f, meta: meta, used: make([]bool, meta.highWater)}
	if err := w.claimFreelist(); err != nil {
		return found{}, err
	}
	found, err := w.walkFile(reader)
	found.info, found.meta = info, meta
	return found, err
}

var errFreelist = corrupt("its list of free pages is not one")

// claimFreelist refuses a list that bbolt did not write, and claims its pages and those in it.
// bbolt has no checksum of it, and would write over pages that are in use.
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
