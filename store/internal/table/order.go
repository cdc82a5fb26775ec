package table

import (
	"fmt"
	"slices"
	"sort"

	"github.com/google/btree"
)

// blockRows is how many rows a block has at most. For this number of rows, and of cells, the
// runtime allocates memory without waste. A block that is left with less than a quarter of that
// takes in the next block.
const blockRows = 63

// order is rows in the order of their keys: blocks of neighbours, and a btree of the blocks. A
// btree of the rows themselves would have to be built row by row when a file is read, and would
// leave half of each node empty.
//
// A clone and its original share their blocks, and each copies a block before it changes it.
type order[T any] struct {
	tree  *btree.BTreeG[block[T]]
	size  int
	owner *ownership // of the blocks that are not shared; nil until there is a clone

	unfolded []*rows[T] // with cells since the last clone; some may have items in their place
}

// ownership is identified by its address.
type ownership struct{ _ byte }

// block is the rows from its first key on, and below the first key of the next block. The lowest
// block begins with the empty key.
type block[T any] struct {
	first string
	rows  *rows[T]
}

// rows is the content of a block, in order: items; or a leaf, which is not written to; or the cells
// of a leaf that was unfolded. Cells keep no version alive that has been replaced. Clones do not
// share cells: items take their place before the block is searched or cloned.
type rows[T any] struct {
	items []item[T]
	leaf  *leaf[T]
	cells []cell[T]
	owner *ownership
}

// item is a row in its place.
type item[T any] struct {
	key     string
	version *version[T]
}

// item returns the cell's newest version as an item.
func (c *cell[T]) item() item[T] { return item[T]{c.key, c.newest()} }

// newOrder returns an order without rows.
func newOrder[T any]() order[T] {
	less := func(a, b block[T]) bool { return a.first < b.first }
	none := btree.NewFreeListG[block[T]](0) // nodes of blocks seldom come and go
	return order[T]{tree: btree.NewWithFreeListG(treeDegree, less, none)}
}

// clone returns the order as it is now.
func (o *order[T]) clone() order[T] {
	for _, r := range o.unfolded {
		r.fix()
	}
	o.unfolded = nil
	o.owner = new(ownership)
	return order[T]{tree: o.tree.Clone(), size: o.size, owner: new(ownership)}
}

// find returns the block where the key is or belongs; false if there is no block yet.
func (o *order[T]) find(key string) (found block[T], ok bool) {
	o.tree.DescendLessOrEqual(block[T]{first: key}, func(b block[T]) bool {
		found, ok = b, true
		return false
	})
	return found, ok
}

// fix puts items in the place of cells.
func (r *rows[T]) fix() {
	if r.cells == nil {
		return
	}
	r.items = make([]item[T], len(r.cells))
	for i := range r.cells {
		r.items[i] = r.cells[i].item()
	}
	r.cells = nil
}

// place returns where in the rows the key is or belongs.
func (r *rows[T]) place(key string) (at int, there bool) {
	r.fix()
	at = sort.Search(len(r.items), func(i int) bool { return r.items[i].key >= key })
	return at, at < len(r.items) && r.items[at].key == key
}

// get returns the row of the key, or nil.
func (o *order[T]) get(key string) *T {
	b, ok := o.find(key)
	switch {
	case !ok:
		return nil
	case b.rows.leaf != nil:
		if at, there := b.rows.leaf.find(key); there {
			return new(b.rows.leaf.row(at))
		}
		return nil
	}
	if at, there := b.rows.place(key); there {
		return b.rows.items[at].version.live()
	}
	return nil
}

// ascend calls visit for the rows from the key on, until it returns false.
func (o *order[T]) ascend(from string, visit func(key string, row *T) bool) {
	if start, ok := o.find(from); ok {
		o.tree.AscendGreaterOrEqual(start, func(b block[T]) bool {
			return b.rows.ascend(from, visit)
		})
	}
}

// ascend calls visit for the rows from the key on, until it returns false, and reports whether it
// never did.
func (r *rows[T]) ascend(from string, visit func(key string, row *T) bool) bool {
	if r.leaf != nil {
		return r.leaf.ascend(from, visit)
	}
	at, _ := r.place(from)
	for _, it := range r.items[at:] {
		if !visit(it.key, &it.version.row) {
			return false
		}
	}
	return true
}

// add makes a block, and returns its rows.
func (o *order[T]) add(first string, items []item[T]) *rows[T] {
	room := blockRows
	if len(items) < blockRows/4 {
		room = blockRows / 4
	}
	added := &rows[T]{items: append(make([]item[T], 0, room), items...), owner: o.owner}
	o.tree.ReplaceOrInsert(block[T]{first, added})
	return added
}

// fill puts the leaves, in order, into an order without rows.
func (o *order[T]) fill(leaves []*leaf[T]) {
	for i, l := range leaves {
		first := ""
		if i > 0 {
			first = l.first
		}
		o.tree.ReplaceOrInsert(block[T]{first, &rows[T]{leaf: l}})
		o.size += l.rows()
	}
}

// unfold puts the cells of one block in the place of the leaf that had their rows, or behind the
// leaf's cells that were put there before.
func (o *order[T]) unfold(cells []cell[T]) {
	first := cells[0].key
	if folded, _ := o.find(first); folded.rows.leaf != nil {
		first = folded.first
	}
	added := &rows[T]{cells: cells, owner: o.owner}
	o.tree.ReplaceOrInsert(block[T]{first, added})
	o.unfolded = append(o.unfolded, added)
}

// change returns the rows of the block, to be changed: a copy if they are shared.
func (o *order[T]) change(b block[T]) *rows[T] {
	if b.rows.owner == o.owner {
		return b.rows
	}
	return o.add(b.first, b.rows.items)
}

// set puts a row in its place, or in the place of the row with the same key.
func (o *order[T]) set(it item[T]) {
	b, ok := o.find(it.key)
	switch {
	case !ok:
		b.rows = o.add("", nil)
	case b.rows.leaf != nil:
		// The key is above all keys of the leaf, or the leaf would have been unfolded: the block
		// where the key belonged is gone.
		b.rows = o.add(it.key, nil)
	}
	into := o.change(b)
	at, there := into.place(it.key)
	if there {
		into.items[at] = it
		return
	}
	if len(into.items) == blockRows {
		into, at = o.split(into, at, it.key)
	}
	into.items = slices.Insert(into.items, at, it)
	o.size++
}

// split makes two blocks of a full one, and returns the block in which the key belongs, and the
// key's position there. If the key belongs at the end of the full block, that block stays full,
// because then keys probably come in order.
func (o *order[T]) split(full *rows[T], at int, key string) (*rows[T], int) {
	const half = blockRows / 2
	if at == blockRows {
		return o.add(key, nil), 0
	}
	above := o.add(full.items[half].key, full.items[half:])
	clear(full.items[half:])
	full.items = full.items[:half]
	if at <= half {
		return full, at
	}
	return above, at - half
}

// remove takes the row with the key out, if there is one.
func (o *order[T]) remove(key string) {
	b, ok := o.find(key)
	if !ok || b.rows.leaf != nil {
		return
	}
	at, there := b.rows.place(key)
	if !there {
		return
	}
	from := o.change(b)
	from.items = slices.Delete(from.items, at, at+1)
	o.size--
	if len(from.items) < blockRows/4 {
		o.merge(block[T]{b.first, from})
	}
}

// merge takes the next block in, if that leaves room, or drops the block if nothing is in it.
func (o *order[T]) merge(b block[T]) {
	if len(b.rows.items) == 0 && b.first != "" {
		o.tree.Delete(b)
		return
	}
	var next block[T]
	o.tree.AscendGreaterOrEqual(b, func(found block[T]) bool {
		next = found
		return found.first == b.first
	})
	if next.first != b.first && next.rows.leaf == nil && next.rows.cells == nil &&
		len(b.rows.items)+len(next.rows.items) <= blockRows/2 {
		b.rows.items = append(b.rows.items, next.rows.items...)
		o.tree.Delete(next)
	}
}

// check returns an error if the rows are not where they are looked for.
func (o *order[T]) check() error {
	size, last, blocks := 0, "", 0
	var err error
	visit := func(b block[T]) bool {
		if blocks++; (blocks == 1) != (b.first == "") {
			err = fmt.Errorf("block %d begins with %q", blocks, b.first)
		}
		n := 0
		b.rows.ascend("", func(key string, _ *T) bool {
			if key < b.first || key <= last && size+n > 0 {
				err = fmt.Errorf("row %q is after %q, in the block from %q on", key, last, b.first)
			}
			last = key
			n++
			return true
		})
		if b.rows.leaf == nil && n > blockRows || n == 0 && b.first != "" {
			err = fmt.Errorf("%d rows are in the block from %q on", n, b.first)
		}
		size += n
		return err == nil
	}
	o.tree.Ascend(visit)
	if err == nil && size != o.size {
		err = fmt.Errorf("%d rows in blocks, %d counted", size, o.size)
	}
	return err
}
