package table

import (
	"fmt"
	"hash/maphash"
	"iter"
	"sync/atomic"

	"github.com/lockd/lockd/store/internal/format"
)

const (
	treeDegree = 32
	pageSize   = 32 // rows that Ascend reads at a time
	catchUps   = 8  // cells that the order catches up by, for each that changes

	// slack is how many cells the order may be behind by, beyond twice the size of the table.
	slack = 128
)

// Table is an ordered map from a string to rows of type T, with versions.
//
// Any goroutine may call Get. For all other methods the caller holds the lock that guards the
// store. A row is immutable once it is in a table, and what a method returns is shared: do not
// change it.
type Table[T any] struct {
	state *State
	codec *format.Rows[T]
	moved func(old, new *T)

	cells  cells[T]
	leaves atomic.Pointer[leaves[T]] // the rows that have no cells; nil: all have
	last   *cell[T]                  // the cell that the writer found last; nil if it found none
	hashed uint64                    // the hash of the key that the writer looked for last
	order  order[T]                  // without what the cells in behind have changed
	view   View[T]                   // a clone of the order; zero: none is as new as the cells
	behind []*cell[T]
	open   []*cell[T]  // what the open batch changed; may name a cell whose change was undone
	flying []*cell[T]  // what the batch that is being written changed
	undo   []change[T] // what the running transaction changed, each cell once
	size   int         // rows that live
	moves  uint64      // how often a row has changed

	// While a file is read:
	read   []*leaf[T]
	pick   func(key string, payload []byte) (chosen bool, err error) // decodes a row; may be nil
	picked []*T
}

// change is a cell and the version it had before the transaction, nil for none.
type change[T any] struct {
	cell *cell[T]
	old  *version[T]
}

func (t *Table[T]) init(s *State, codec *format.Rows[T]) {
	t.state, t.codec = s, codec
	s.tables[codec.Table] = t
	t.cells.seed = maphash.MakeSeed()
	t.order = newOrder[T]()
}

// OnMove sets the function moved. It is called for every change of a newest row, by a write, an
// undo or a drop, with the old and the new newest row; nil means that there is none. So an index
// that moved maintains is always right. moved is called before the write returns, and must not
// write.
func (t *Table[T]) OnMove(moved func(old, new *T)) { t.moved = moved }

// Len is the number of rows, those not published yet included.
func (t *Table[T]) Len() int { return t.size }

// Get returns the published row, or nil. It takes no lock, waits for no writer and allocates
// nothing, unless the caller keeps the row.
func (t *Table[T]) Get(key string) *T {
	// Get is so short that it is inlined: so the new row is on the caller's stack.
	return t.get(key, new(T))
}

// get is Get, with a place for a row that has to be made.
func (t *Table[T]) get(key string, into *T) *T {
	for {
		published := t.state.published.Load()
		leaves := t.leaves.Load()
		newest, there := t.cells.newest(key)
		if !there && leaves != nil {
			if row := leaves.get(key, into); row != nil {
				return row
			}
			// The key's leaf may have been unfolded since we looked for its cell.
			newest, there = t.cells.newest(key)
		}
		if !there {
			return nil
		}
		v := newest.at(published)
		// No version so old: the row is new, or a publication cut the chain while we walked.
		if v != nil || t.state.published.Load() == published {
			return v.live()
		}
	}
}

// Newest returns the newest row, published or not, or nil.
func (t *Table[T]) Newest(key string) *T {
	if t.size == 0 {
		return nil // without a search: most tables of most stores are empty
	}
	_, newest := t.find(key)
	return newest.live()
}

// find returns the key's cell and its newest version; nil and nil if there is no cell. A writer
// often asks for the same key several times: only the first of these calls searches.
func (t *Table[T]) find(key string) (c *cell[T], newest *version[T]) {
	if t.last != nil && t.last.key == key {
		return t.last, t.last.newest()
	}
	t.hashed = t.cells.hash(key)
	c, newest = t.cells.find(key, t.hashed)
	if c == nil && t.unfold(key) {
		c, newest = t.cells.find(key, t.hashed)
	}
	t.last = c
	return c, newest
}

// forget removes the cell.
func (t *Table[T]) forget(c *cell[T]) {
	if t.last != c {
		t.cells.remove(c, t.cells.hash(c.key))
		return
	}
	t.cells.remove(c, t.hashed)
	t.last = nil
}

// Put makes row the newest row of the key, at the transaction's index, and returns it. It panics if
// a file could not have the row: if the key is empty, or is longer than schema.KeyLimit together
// with what the table puts before it.
func (t *Table[T]) Put(key string, row T) *T {
	d := &Draft[T]{version[T]{row: row}}
	t.Write(key, d)
	return &d.version.row
}

// Draft is a row to be written, in the memory that it will have in the table. The zero value is an
// empty row.
type Draft[T any] struct{ version version[T] }

// Row returns the row. It may be changed until it is written.
func (d *Draft[T]) Row() *T { return &d.version.row }

// Draft returns a copy of the newest row of the key, or an empty one if there is none.
func (t *Table[T]) Draft(key string) *Draft[T] {
	d := new(Draft[T])
	if row := t.Newest(key); row != nil {
		d.version.row = *row
	}
	return d
}

// Write makes the draft the newest row of the key, as Put does. A draft is written once, and must
// not be changed after that.
func (t *Table[T]) Write(key string, d *Draft[T]) { t.set(key, &d.version) }

// Delete removes the newest row of the key, which must be there.
func (t *Table[T]) Delete(key string) {
	t.set(key, &version[T]{dead: true})
}

// set makes next, which is new, the newest version of the key.
func (t *Table[T]) set(key string, next *version[T]) {
	s := t.state
	c, old := t.find(key)
	if c == nil {
		if !t.codec.Fits(key) { // it would fail the whole batch
			panic(fmt.Sprintf("store: a key of %d bytes in %s", len(key),
				format.TableName(t.codec.Table)))
		}
		c = &cell[T]{key: key}
		t.cells.insert(c, nil, t.hashed)
		t.last = c
	}
	next.index = s.Next()
	switch {
	case old == nil:
		t.undo = append(t.undo, change[T]{c, nil})
	case old.index > s.taken:
		// The open batch has one version of a row: this one replaces the one before.
		next.prev.Store(old.prev.Load())
		if old.index != next.index {
			t.undo = append(t.undo, change[T]{c, old})
		}
	default:
		next.prev.Store(old)
		t.undo = append(t.undo, change[T]{c, old})
	}
	s.touched |= 1 << t.codec.Table
	if !c.listed {
		c.listed = true
		t.open = append(t.open, c)
	}
	t.move(c, old, next)
}

// move makes next the head of the cell, and updates what depends on the heads: the size, the view,
// the list behind, and the OnMove hook.
func (t *Table[T]) move(c *cell[T], old, next *version[T]) {
	before, after := old.live(), next.live()
	if before != nil {
		t.size--
	}
	if after != nil {
		t.size++
	}
	c.head.Store(next)
	t.moves++
	if t.view.made() {
		t.view = View[T]{} // it is outdated, and would keep its rows
	}
	if c.behind == 0 {
		t.behind = append(t.behind, c)
		c.behind = uint32(len(t.behind))
	}
	if t.moved != nil {
		t.moved(before, after)
	}
}

// Changed reports whether the running transaction changed any row.
func (t *Table[T]) Changed() bool { return len(t.undo) > 0 }

// Changes yields, for each row that the running transaction changed, the row before the transaction
// and the newest row; nil means that there is none. It leaves out rows that the transaction made
// and removed.
func (t *Table[T]) Changes() iter.Seq2[*T, *T] {
	return func(yield func(*T, *T) bool) {
		for _, changed := range t.undo {
			old, newest := changed.old.live(), changed.cell.newest().live()
			if (old != nil || newest != nil) && !yield(old, newest) {
				return
			}
		}
	}
}

// Ascend yields the newest rows from the key on, in order. The loop may write, and then sees its
// own writes to the keys that follow. Loops may be nested.
func (t *Table[T]) Ascend(from string) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		var page [pageSize]struct {
			key string
			row *T
		}
		for {
			t.catchUp()
			n, moves := 0, t.moves
			t.order.ascend(from, func(key string, row *T) bool {
				page[n].key, page[n].row = key, row
				n++
				return n < pageSize
			})
			done := 0
			for _, it := range page[:n] {
				if !yield(it.key, it.row) {
					return
				}
				done++
				if t.moves != moves { // the loop has written: the page may be wrong
					break
				}
			}
			if done == n && n < pageSize && t.moves == moves {
				return
			}
			from = page[done-1].key + "\x00" // the least string above it
		}
	}
}

// Prefix is Ascend for the rows whose keys begin with the prefix.
func (t *Table[T]) Prefix(prefix string) iter.Seq2[string, *T] {
	return within(prefix, t.Ascend(prefix))
}

// catchUp brings the order to the newest rows, and drops the cells of rows that are gone.
func (t *Table[T]) catchUp() { t.catchUpBy(len(t.behind)) }

// catchUpBy is catchUp for the given number of cells, the last of those that are behind.
func (t *Table[T]) catchUpBy(most int) {
	left := len(t.behind) - most
	for i, c := range t.behind[left:] {
		t.behind[left+i] = nil
		c.behind = 0
		head := c.newest()
		live := head.live() != nil
		switch {
		case live:
			t.order.set(c.item())
		case c.ordered:
			t.order.remove(c.key)
		}
		c.ordered = live
		if !live && (head == nil || head.index <= t.state.published.Load()) {
			t.forget(c)
		}
	}
	t.behind = t.behind[:left]
}

// catchesUp removes from behind a cell whose key the order does not have, and is not to have.
func (t *Table[T]) catchesUp(c *cell[T]) {
	last := len(t.behind) - 1
	moved := t.behind[last]
	t.behind[c.behind-1], moved.behind = moved, c.behind
	t.behind[last] = nil
	t.behind, c.behind = t.behind[:last], 0
}

// rollBack takes back what the running transaction changed.
func (t *Table[T]) rollBack() {
	for i := len(t.undo) - 1; i >= 0; i-- {
		undone := t.undo[i]
		t.move(undone.cell, undone.cell.newest(), undone.old)
	}
	t.seal()
}

// seal ends the transaction as far as this table goes.
func (t *Table[T]) seal() {
	// The order must not lag ever farther behind while no caller reads it. Each transaction brings
	// a few cells into the order, more than it adds to those that lag, but not all of them.
	if late := len(t.behind); late > slack+2*t.size {
		t.catchUpBy(min(late, catchUps*len(t.undo)))
	}
	clear(t.undo)
	t.undo = t.undo[:0]
}

// publish ends the open list in memory, where there is no Take: its versions are published.
func (t *Table[T]) publish() {
	for i, c := range t.open {
		t.open[i] = nil
		c.listed = false
		if head := c.newest(); head != nil {
			t.settle(c, head)
		}
	}
	t.open = t.open[:0]
}

// settle drops what no reader needs once v is published: the older versions and, if v is the newest
// version and dead, the cell.
func (t *Table[T]) settle(c *cell[T], v *version[T]) {
	if v.prev.Load() != nil { // a new row has none, and a load is much cheaper than a store
		v.prev.Store(nil)
	}
	if !v.dead || c.newest() != v {
		return
	}
	if c.behind != 0 && !c.ordered {
		t.catchesUp(c)
	}
	if c.behind == 0 { // else the order has to catch up first
		t.forget(c)
	}
}

// snapshot returns the published rows, in order.
func (t *Table[T]) snapshot() View[T] {
	if t.view.made() {
		return t.view
	}
	t.catchUp()
	if len(t.flying)+len(t.open) > 0 {
		return t.published()
	}
	t.view = View[T]{t.order.clone()}
	return t.view
}

// published returns the newest rows, with the published rows in place of those that are not
// published.
func (t *Table[T]) published() View[T] {
	order := t.order.clone()
	for _, changed := range [][]*cell[T]{t.flying, t.open} {
		for _, c := range changed {
			if v := c.newest().at(t.state.Published()); v.live() != nil {
				order.set(item[T]{c.key, v})
			} else {
				order.remove(c.key)
			}
		}
	}
	return View[T]{order}
}

// take closes the open list, and returns what it holds, and the number of its rows.
func (t *Table[T]) take() (part, int) {
	p := &tablePart[T]{table: t, rows: make([]taken[T], 0, len(t.open))}
	for _, c := range t.open {
		c.listed = false
		if head := c.newest(); head != nil && head.index > t.state.taken {
			p.rows = append(p.rows, taken[T]{c, head})
		}
	}
	t.open, t.flying = t.flying, t.open
	return p, len(p.rows)
}

// land ends the list of the batch that was being written, which has been published or dropped.
func (t *Table[T]) land() {
	clear(t.flying)
	t.flying = t.flying[:0]
}
