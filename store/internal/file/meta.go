package file

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// What bbolt's format says, as its version 2 fixes it.
const (
	boltMagic    = 0xED0CDAED
	boltVersion  = 2
	headSize     = 16         // bytes at the start of every page, before its content
	metaSize     = 64         // bytes of a meta page's content
	metaSumAt    = 56         // where in it the checksum of what precedes is
	metaCommitAt = 48         // where in it the number of the commit is
	numberSize   = 8          // bytes of a page's number in the list
	noFreelist   = ^uint64(0) // in place of the list's page: the list is not in the file
	freelistFlag = 0x10       // the kind of the list's page
	manyFree     = 0xffff     // in place of the list's length: it is the first number in the list
	firstPage    = 2          // the lowest page that is not a meta page
	leastPage    = 1 << 10    // bytes of a page that bbolt looks for
	greatestPage = 1 << 24
)

// metaPage is what bbolt starts from. The zero value is a page that is not there.
type metaPage struct {
	magic     uint32
	version   uint32
	pageSize  uint32
	root      uint64 // page of the root bucket
	freelist  uint64 // page of the free list
	highWater uint64 // pages in use are below it
	commit    uint64 // counts bbolt's transactions
	whole     bool   // the checksum fits, and all else that bbolt looks at
	number    uint64 // which of the two it is
	raw       [metaSize]byte
}

// newestMeta returns the meta page that bbolt will use, and the other one. The second page is where
// the first one says, or must be looked for.
func newestMeta(f *os.File) (newest, other metaPage, err error) {
	if newest, err = readMeta(f, 0, 0); err != nil {
		return newest, other, err
	}
	if newest.whole {
		other, err = readMeta(f, 1, int64(newest.pageSize))
	} else {
		other, err = findSecond(f)
	}
	switch {
	case err != nil:
	case other.whole && (!newest.whole || other.commit > newest.commit):
		newest, other = other, newest
	case !newest.whole:
		err = explain(f, newest, other)
	}
	return newest, other, err
}

// findSecond looks for the second meta page wherever it may be.
func findSecond(f *os.File) (second metaPage, err error) {
	for size := uint32(leastPage); size <= greatestPage && !second.whole; size *= 2 {
		found, err := readMeta(f, 1, int64(size))
		if err != nil {
			return metaPage{}, err
		}
		if found.magic == boltMagic && found.pageSize == size {
			second = found
		}
	}
	return second, nil
}

// explain says why there is no whole meta page.
func explain(f *os.File, first, second metaPage) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return cause(err)
	case info.Size() == 0:
		return corrupt("it is empty")
	case first.magic != boltMagic && second.magic != boltMagic:
		return fmt.Errorf("%w: it is not a bbolt file; choose another path", ErrFormat)
	case first.magic == boltMagic && first.version != boltVersion:
		return fmt.Errorf("%w: it is of version %d of bbolt's format", ErrFormat, first.version)
	}
	return corrupt("neither of its two meta pages is whole")
}

// readMeta reads a meta page, which is at the offset. A page that is beyond the end is all zeros.
func readMeta(f *os.File, number uint64, offset int64) (metaPage, error) {
	var buf [metaSize]byte
	n, err := f.ReadAt(buf[:], offset+headSize)
	if n < len(buf) {
		if errors.Is(err, io.EOF) {
			return metaPage{number: number}, nil
		}
		return metaPage{}, cause(err)
	}
	order := binary.NativeEndian // bbolt's files are as the machine is
	meta := metaPage{
		magic:     order.Uint32(buf[0:]),
		version:   order.Uint32(buf[4:]),
		pageSize:  order.Uint32(buf[8:]),
		root:      order.Uint64(buf[16:]),
		freelist:  order.Uint64(buf[32:]),
		highWater: order.Uint64(buf[40:]),
		commit:    order.Uint64(buf[metaCommitAt:]),
		number:    number,
		raw:       buf,
	}
	meta.whole = meta.magic == boltMagic && meta.version == boltVersion &&
		meta.pageSize >= leastPage && meta.pageSize <= greatestPage &&
		meta.pageSize&(meta.pageSize-1) == 0 &&
		order.Uint64(buf[metaSumAt:]) == metaSum(buf)
	return meta, nil
}

// inspectPair returns ErrCorrupt if the newest commit may be in the other meta page.
func inspectPair(meta, other metaPage) error {
	beside := other.commit+1 == meta.commit || meta.commit+1 == other.commit
	switch {
	case meta.commit%2 != meta.number || !beside:
	case other.whole && other.pageSize == meta.pageSize:
		return nil
	case !bytes.Equal(other.raw[:16], meta.raw[:16]): // what no commit changes
	case !bytes.Equal(other.raw[24:32], meta.raw[24:32]):
	case !flipped(other, meta.commit+1):
		return nil // a crash while it was written leaves that
	}
	return corrupt("meta page %d is not what a commit leaves; the last commit may be lost",
		other.number)
}

// flipped reports whether the page was the whole one of that commit before one of its bits changed.
func flipped(meta metaPage, commit uint64) bool {
	for bit := range 8 * metaSize {
		raw := meta.raw
		raw[bit/8] ^= 1 << (bit % 8)
		if metaSum(raw) == binary.NativeEndian.Uint64(raw[metaSumAt:]) {
			return binary.NativeEndian.Uint64(raw[metaCommitAt:]) == commit
		}
	}
	return false
}

func metaSum(raw [metaSize]byte) uint64 {
	sum := fnv.New64a()
	sum.Write(raw[:metaSumAt])
	return sum.Sum64()
}
