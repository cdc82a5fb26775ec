package table

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/lockd/lockd/store/internal/format"
)

// Batch is what one commit writes: the newest version of every row that changed since the batch
// before. The zero value is not usable; [State.Take] makes one.
type Batch struct {
	state *State
	index uint64
	parts []part
	rows  int // in all parts
}

// Take closes the open batch and returns it, to be written; later writes go to the next batch. The
// batch that Take returned before must have been published or dropped.
func (s *State) Take() *Batch {
	b := &Batch{state: s, index: s.index}
	for set := s.pending; set != 0; set &= set - 1 {
		p, rows := s.tables[bits.TrailingZeros16(set)].take()
		b.parts, b.rows = append(b.parts, p), b.rows+rows
	}
	s.taken = s.index
	s.pending = 0
	return b
}

// part is a batch's share of one table.
type part interface {
	encode(buffer []byte, rows []format.Write, after *format.Tally) ([]byte, []format.Write)
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

// Encode returns the rows of the batch in order, as a file gets them, and the tally that they leave
// in a file with the given tally. It is called once for each batch, by one goroutine at a time.
func (b *Batch) Encode(after format.Tally) ([]format.Write, format.Tally) {
	rows := make([]format.Write, 0, b.rows)
	buffer := b.state.buffer[:0]
	for _, p := range b.parts {
		buffer, rows = p.encode(buffer, rows, &after)
	}
	if b.state.buffer = buffer; cap(buffer) > mostBuffer {
		b.state.buffer = nil
	}
	return rows, after
}

// drop takes back what the batch has, which is not published.
func (b *Batch) drop() {
	for _, p := range b.parts {
		p.drop()
	}
}

// Index is the index of the batch's last transaction.
func (b *Batch) Index() uint64 { return b.index }

func (p *tablePart[T]) encode(
	buffer []byte, rows []format.Write, after *format.Tally,
) ([]byte, []format.Write) {
	// In order: bbolt splits a page only when it commits, so that in random order each of many rows
	// would move half of the rows before it.
	slices.SortFunc(p.rows, func(a, b taken[T]) int { return cmp.Compare(a.cell.key, b.cell.key) })
	t, first := p.table, len(rows)
	for _, r := range p.rows {
		// The version before is the one in the file: the open batch has one version of a row.
		place, old := "", r.version.prev.Load()
		if !r.version.dead {
			place = t.codec.Place(r.cell.key, &r.version.row)
		}
		if old.live() != nil {
			after.Remove(old.checksum)
			if was := t.codec.Place(r.cell.key, &old.row); was != place {
				rows = append(rows, format.Write{Table: t.codec.Table, Key: was})
			}
		}
		if r.version.dead {
			continue
		}
		write := format.Write{Table: t.codec.Table, Key: place}
		start := len(buffer)
		buffer = t.codec.Append(buffer, write.Key, &r.version.row)
		write.Value = buffer[start:len(buffer):len(buffer)]
		r.version.checksum = format.StoredChecksum(write.Value)
		after.Add(r.version.checksum)
		rows = append(rows, write)
	}
	if !t.codec.ByKey() {
		slices.SortFunc(rows[first:], byPlace)
	}
	return buffer, rows
}

// byPlace orders rows of one table as the file does.
func byPlace(a, b format.Write) int { return cmp.Compare(a.Key, b.Key) }

func (p *tablePart[T]) publish() {
	for _, r := range p.rows {
		p.table.settle(r.cell, r.version)
	}
	p.table.land()
}

func (p *tablePart[T]) drop() {
	for _, r := range p.rows {
		head := r.cell.newest()
		if kept := head.at(p.table.state.Published()); kept != head {
			p.table.move(r.cell, head, kept)
		}
	}
	p.table.land()
}
