package table

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sort"
	"strings"
	"sync/atomic"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store/internal/format"
)

// leaf has neighbouring rows as they were read from the file, not written to since. A row is
// decoded when a reader looks at it, and shares the leaf's memory.
type leaf[T any] struct {
	table   *Table[T]
	first   string // the first key, in memory of its own
	content format.Chunk
	tags    []byte // of each row, a part of its key's hash; verify makes them
}

// newLeaf keeps a copy of the rows.
func newLeaf[T any](t *Table[T], content *format.Chunk) *leaf[T] {
	l := &leaf[T]{table: t}
	l.content, l.tags = content.Clone()
	l.first = strings.Clone(l.key(0))
	return l
}

// verify implements page.
func (l *leaf[T]) verify(found *format.Tally) error {
	t := l.table
	for i := range l.tags {
		row, keySize := l.content.At(i)
		key, chosen := format.StringOf(row[:keySize]), false
		payload, err := format.VerifyRow(t.codec.Table, row, keySize)
		switch {
		case err != nil:
		case t.pick != nil:
			chosen, err = t.pick(key, payload)
		default:
			_, err = t.codec.DecodePayload(t.codec.Key(key), payload)
		}
		if err != nil {
			return format.RowError(t.codec.Table, key, err)
		}
		if chosen {
			row, _ := t.codec.DecodePayload(strings.Clone(key), bytes.Clone(payload))
			t.picked = append(t.picked, &row)
		}
		found.Add(format.StoredChecksum(row))
		l.tags[i] = l.tag(key)
	}
	return nil
}

// rows returns the number of rows.
func (l *leaf[T]) rows() int { return len(l.tags) }

// at returns key, payload and checksum of a row.
func (l *leaf[T]) at(i int) (key string, payload []byte, checksum uint32) {
	row, keySize := l.content.At(i)
	end := len(row) - format.ChecksumSize
	return format.StringOf(row[:keySize]), row[keySize:end:end], format.StoredChecksum(row)
}

func (l *leaf[T]) key(i int) string { return l.content.Key(i) }

// row decodes a row.
func (l *leaf[T]) row(i int) T {
	key, payload, _ := l.at(i)
	row, _ := l.table.codec.DecodePayload(key, payload) // verify has done it before
	return row
}

func (l *leaf[T]) tag(key string) byte { return byte(maphash.String(l.table.cells.seed, key)) }

// find returns where the row of the key is.
func (l *leaf[T]) find(key string) (at int, there bool) {
	tag := l.tag(key)
	for {
		next := bytes.IndexByte(l.tags[at:], tag)
		if next < 0 {
			return 0, false
		}
		at += next
		if l.key(at) == key {
			return at, true
		}
		at++
	}
}

// ascend calls visit for the rows from the key on, until it returns false, and reports whether it
// never did.
func (l *leaf[T]) ascend(from string, visit func(key string, row *T) bool) bool {
	at := sort.Search(l.rows(), func(i int) bool { return l.key(i) >= from })
	for ; at < l.rows(); at++ {
		if !visit(l.key(at), new(l.row(at))) {
			return false
		}
	}
	return true
}

// A piece of memory that rows share is freed when none of them needs it. Cells and keys stay as a
// rule, so they share pieces of a block's size. Versions are freed one by one, when their rows are
// written to, and a caller that has kept a row may keep just one version; so few versions share a
// piece. Three versions of keys have less than 512 bytes, above which the runtime allocates less
// tightly: of four versions each would take 160 bytes, and not 149.
const versionsAtOnce = 3

// unfold makes a cell for each row, in memory of its own, and returns the cells in blocks, for the
// order.
func (l *leaf[T]) unfold() [][]cell[T] {
	blocks := make([][]cell[T], 0, (l.rows()+blockRows-1)/blockRows)
	for from := 0; from < l.rows(); from += blockRows {
		blocks = append(blocks, l.unfoldBlock(from, min(blockRows, l.rows()-from)))
	}
	return blocks
}

// unfoldBlock unfolds count rows.
func (l *leaf[T]) unfoldBlock(from, count int) []cell[T] {
	t, size := l.table, 0
	for i := range count {
		size += len(l.key(from + i))
	}
	places := make([]byte, 0, size)
	cells := make([]cell[T], count)
	for i := range cells {
		start := len(places)
		place := l.key(from + i)
		places = append(places, place...)
		cells[i].key = t.codec.Key(format.StringOf(places[start:]))
	}
	for at := 0; at < count; at += versionsAtOnce {
		l.unfoldVersions(from+at, cells[at:min(at+versionsAtOnce, count)])
	}
	return cells
}

// unfoldVersions puts the cells into the table, with their versions.
func (l *leaf[T]) unfoldVersions(from int, cells []cell[T]) {
	size := 0
	for i := range cells {
		_, payload, _ := l.at(from + i)
		size += len(payload)
	}
	payloads := make([]byte, 0, size)
	versions := make([]version[T], len(cells))
	for i := range cells {
		_, payload, checksum := l.at(from + i)
		start := len(payloads)
		payloads = append(payloads, payload...)
		c, v := &cells[i], &versions[i]
		v.row, _ = l.table.codec.DecodePayload(c.key, payloads[start:])
		v.index, v.checksum = schema.FirstIndex, checksum
		c.ordered = true
		l.table.cells.insert(c, v, l.table.cells.hash(c.key))
	}
}

// leaves are the leaves that a table still has as they were read. Readers take no lock: either a
// leaf is there, or it was unfolded and all its rows have cells. The writer works on cells only, so
// it unfolds a leaf when it looks for a key that is in the leaf or belongs there. A leaf that the
// writer does not touch stays small.
type leaves[T any] struct {
	firsts []string // the first key of each
	places []atomic.Pointer[leaf[T]]
	left   int // how many leaves are there
}

func newLeaves[T any](read []*leaf[T]) *leaves[T] {
	l := &leaves[T]{
		firsts: make([]string, len(read)),
		places: make([]atomic.Pointer[leaf[T]], len(read)),
		left:   len(read),
	}
	for i, leaf := range read {
		l.firsts[i] = leaf.first
		l.places[i].Store(leaf)
	}
	return l
}

// place returns the place of the leaf where the key is or belongs.
func (l *leaves[T]) place(key string) *atomic.Pointer[leaf[T]] {
	at, there := slices.BinarySearch(l.firsts, key)
	if !there && at > 0 {
		at--
	}
	return &l.places[at]
}

// get decodes the row of the key into *into; it returns nil if no leaf has the key.
func (l *leaves[T]) get(key string, into *T) *T {
	leaf := l.place(key).Load()
	if leaf == nil {
		return nil
	}
	at, there := leaf.find(key)
	if !there {
		return nil
	}
	*into = leaf.row(at)
	return into
}

// unfold makes cells for the rows of the leaf where the key is or belongs, and reports whether
// there was such a leaf.
func (t *Table[T]) unfold(key string) bool {
	leaves := t.leaves.Load()
	if leaves == nil {
		return false
	}
	place := leaves.place(key)
	leaf := place.Load()
	if leaf == nil {
		return false
	}
	for _, cells := range leaf.unfold() {
		t.order.unfold(cells)
	}
	place.Store(nil) // from now on readers look for cells only
	if leaves.left--; leaves.left == 0 {
		t.leaves.Store(nil)
	}
	return true
}
