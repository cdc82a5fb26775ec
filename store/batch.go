package store

import (
	"cmp"
	"slices"
)

// Batch is what one commit writes: the newest version of every row that changed since the batch
// before. The zero value is not usable; [Store.Take] makes one.
type Batch struct {
	store  *Store
	index  uint64
	parts  []part
	buffer []byte
}

// part is a batch's share of one table.
type part interface {
	encode(buffer []byte, rows []rowWrite, after *tally) ([]byte, []rowWrite)
	size() int
	publish()
	drop()
}

type tablePart[T any] struct {
	table *Table[T]
	rows  []taken[T]
}

// taken is a row's cell and the version to be written.
type taken[T any] struct {
	cell    *cell[T]
	version *version[T]
}

// mostBuffer is how many bytes for encoded rows are kept at most from one batch to the next.
const mostBuffer = 1 << 20

// Write commits the batch to the file, whole or not at all, with its index. It is called
// without the store's lock, by one goroutine at a time, once. After an error
// [Store.FileIndex] tells whether the file has the batch.
func (b *Batch) Write() error {
	s := b.store
	rows := make([]rowWrite, 0, b.size())
	buffer, after := b.buffer[:0], s.file.tally()
	for _, p := range b.parts {
		buffer, rows = p.encode(buffer, rows, &after)
	}
	if s.buffer = buffer; cap(buffer) > mostBuffer {
		s.buffer = nil
	}
	return s.file.commit(rows, header{index: b.index, tally: after})
}

// size is how many rows the batch has.
func (b *Batch) size() int {
	n := 0
	for _, p := range b.parts {
		n += p.size()
	}
	return n
}

// Index is the index of the batch's last transaction.
func (b *Batch) Index() uint64 { return b.index }

func (p *tablePart[T]) encode(
	buffer []byte, rows []rowWrite, after *tally,
) ([]byte, []rowWrite) {
	// In order: bbolt splits a page only when it commits, so that each of many rows at random would
	// move half of those before it.
	slices.SortFunc(p.rows, func(a, b taken[T]) int { return cmp.Compare(a.cell.key, b.cell.key) })
	t, first := p.table, len(rows)
	for _, r := range p.rows {
		// A version follows the one in the file: the open batch has one version of a row.
		place, old := t.place(r.cell.key, r.version), r.version.prev.Load()
		if old.live() != nil {
			after.remove(old.checksum)
			if was := t.place(r.cell.key, old); r.version.dead || was != place {
				rows = append(rows, rowWrite{table: t.number, key: was})
			}
		}
		if r.version.dead {
			continue
		}
		write := rowWrite{table: t.number, key: place}
		start := len(buffer)
		buffer = appendRow(buffer, t.number, write.key, t.codec, &r.version.row)
		write.value = buffer[start:len(buffer):len(buffer)]
		r.version.checksum = storedChecksum(write.value)
		after.add(r.version.checksum)
		rows = append(rows, write)
	}
	if t.layout != nil {
		slices.SortFunc(rows[first:], func(a, b rowWrite) int { return cmp.Compare(a.key, b.key) })
	}
	return buffer, rows
}

func (p *tablePart[T]) size() int { return len(p.rows) }

func (p *tablePart[T]) publish() {
	for _, r := range p.rows {
		p.table.settle(r.cell, r.version)
	}
	p.table.land()
}

func (p *tablePart[T]) drop() {
	for _, r := range p.rows {
		p.table.dropCell(r.cell)
	}
	p.table.land()
}
