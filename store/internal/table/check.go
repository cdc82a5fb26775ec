package table

import (
	"fmt"

	"github.com/lockd/lockd/store/internal/format"
)

// Check compares what the store keeps twice, and returns an error that names the first difference.
// It is for tests: it takes time in proportion to the number of rows. The caller holds the store's
// lock, and no transaction is running.
func (s *State) Check() error {
	for number := range format.TableCount {
		if err := s.tables[number].check(); err != nil {
			return fmt.Errorf("store: bug: table of %s: %w", format.TableName(number), err)
		}
	}
	if n := s.graves.byAge.Len(); n != s.graves.table.Len() {
		return fmt.Errorf("store: bug: %d tombstones by age, %d rows", n, s.graves.table.Len())
	}
	return nil
}

// Rows is the number of rows in all tables.
func (s *State) Rows() int {
	n := 0
	for _, t := range s.tables {
		n += t.Len()
	}
	return n
}

func (t *Table[T]) check() error {
	t.catchUp()
	if err := t.order.check(); err != nil {
		return err
	}
	if t.order.size != t.size {
		return fmt.Errorf("%d rows in order, %d counted", t.order.size, t.size)
	}
	var err error
	t.order.ascend("", func(key string, row *T) bool {
		group, place, newest := t.cells.search(key, t.cells.hash(key))
		leaves := t.leaves.Load()
		inLeaf := leaves != nil && leaves.get(key, new(T)) != nil
		switch {
		case group == nil && !inLeaf:
			err = fmt.Errorf("row %q has no cell", key)
		case group == nil:
		case inLeaf:
			err = fmt.Errorf("row %q has a cell, and is in a leaf", key)
		case group.cells[place].Load().key != key:
			err = fmt.Errorf("row %q is where another one has its cell", key)
		case group.cells[place].Load().head != &group.heads[place]:
			err = fmt.Errorf("row %q hangs where its cell is not", key)
		case newest.live() != row:
			err = fmt.Errorf("row %q is not the newest version", key)
		case newest.index > t.state.index:
			err = fmt.Errorf("row %q is of index %d, ahead of %d", key, newest.index,
				t.state.index)
		}
		return err == nil
	})
	if err == nil && len(t.undo) > 0 {
		err = fmt.Errorf("%d changes of a transaction that has ended", len(t.undo))
	}
	return err
}
