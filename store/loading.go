package store

import (
	"fmt"
)

// loading gives a state the rows of a file, which are verified while the next are read.
type loading struct {
	state     *State
	left      tally // what the last commit left
	verifying verifying
}

// load returns what gives s the rows of a file. Init has made s, and nothing was written to it.
func (s *State) load() *loading { return &loading{state: s} }

// begin is the rowReader's.
func (l *loading) Begin(index uint64, left tally) {
	l.discard()
	*l = loading{state: l.state, left: left}
	l.state.index = index
}

// rows is the rowReader's.
func (l *loading) Rows(table byte, c *chunk) {
	l.verifying.add(l.state.table(int(table)).add(c))
}

// end is the rowReader's. It returns an error too if these are not the rows that the last commit
// left.
func (l *loading) End() error {
	if err := l.verifying.end(); err != nil {
		return err
	}
	for table := range tableCount {
		if err := l.state.table(int(table)).loaded(); err != nil {
			return err
		}
	}
	if found := l.verifying.found; found != l.left {
		return fmt.Errorf("%w: it has %d rows with the checksum %x, and its last commit left %d "+
			"with %x: the disk has lost a write", ErrCorrupt, found.rows, found.sum, l.left.rows,
			l.left.sum)
	}
	return nil
}

// publish shows the rows to readers and to the OnMove hooks. No error may have come.
func (l *loading) publish() {
	for table := range tableCount {
		l.state.table(int(table)).tell()
	}
	l.state.taken = l.state.index
	l.state.published.Store(l.state.index)
}

// discard drops what was read.
func (l *loading) discard() {
	l.verifying.stop()
	for table := range tableCount {
		l.state.table(int(table)).clear()
	}
}

// add makes a leaf of rows that come next in the file, and returns it to be verified.
func (t *Table[T]) add(content *chunk) page {
	leaf := newLeaf(t, content)
	t.read = append(t.read, leaf)
	return leaf
}

// loaded ends the reading, when all is verified: the rows are found from now on.
func (t *Table[T]) loaded() error {
	read := t.read
	t.read = nil
	for _, leaf := range read {
		t.size += leaf.rows()
		if t.layout == nil {
			continue
		}
		if err := t.insert(leaf); err != nil {
			return err
		}
	}
	if t.layout == nil && len(read) > 0 {
		t.leaves.Store(newLeaves(read))
		t.order.fill(read)
	}
	return nil
}

// insert puts the rows of a leaf in their places, in a table whose rows have another order in the
// file.
func (t *Table[T]) insert(leaf *leaf[T]) error {
	at := 0
	for _, cells := range leaf.unfold() {
		for i := range cells {
			it, place := cells[i].item(), leaf.key(at)
			switch {
			case t.place(it.key, it.version) != place:
				return rowError(t.number, place, errPlace)
			case t.order.get(it.key) != nil:
				return rowError(t.number, place, errTwice)
			}
			t.order.set(it)
			at++
		}
	}
	return nil
}

// tell tells the OnMove hook of all rows.
func (t *Table[T]) tell() {
	if t.moved != nil {
		t.order.ascend("", func(_ string, row *T) bool {
			t.moved(nil, row)
			return true
		})
	}
}

// clear drops what was read.
func (t *Table[T]) clear() {
	t.read, t.picked, t.size = nil, nil, 0
	t.leaves.Store(nil)
	t.cells = cells[T]{seed: t.cells.seed, keyOf: t.cells.keyOf}
	if t.order.size > 0 {
		t.order = newOrder[T]()
	}
}
