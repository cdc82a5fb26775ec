package table

import (
	"errors"
	"fmt"

	"github.com/lockd/lockd/store/internal/format"
)

// Loading gives a state the rows of a file. If there are many, a goroutine verifies some of them
// while the next are read, because verifying takes about as long as reading.
type Loading struct {
	state  *State
	left   format.Tally // what the last commit left
	next   []page       // not handed over yet
	handed chan []page  // nil: there is no goroutine
	done   chan struct{}
	found  format.Tally
	err    error // of the first row that is wrong
}

// page is a leaf of any table, as it was read.
type page interface {
	// verify adds the rows to what was found, or returns an error that says what is wrong with one.
	verify(found *format.Tally) error
}

// pagesAtOnce is how many pages are handed over at a time.
const pagesAtOnce = 32

// Load returns a Loading for s. Init has made s, and nothing was written to it.
func (s *State) Load() *Loading { return &Loading{state: s} }

// Begin is called before the first row, with the index and the tally of the file's last commit.
// Rows that were read before do not count.
func (l *Loading) Begin(index uint64, left format.Tally) {
	l.Discard()
	*l = Loading{state: l.state, left: left}
	l.state.index = index
}

// Rows is called with all rows, table by table and in the order of the file. The chunk is not kept.
func (l *Loading) Rows(table byte, c *format.Chunk) {
	l.next = append(l.next, l.state.tables[table].add(c))
	if len(l.next) < pagesAtOnce {
		return
	}
	if l.handed == nil {
		l.handed, l.done = make(chan []page, 16), make(chan struct{})
		go func() {
			defer close(l.done)
			for pages := range l.handed {
				l.verify(pages)
			}
		}()
	}
	l.handed <- l.next
	l.next = make([]page, 0, pagesAtOnce)
}

func (l *Loading) verify(pages []page) {
	for _, p := range pages {
		if l.err == nil {
			l.err = p.verify(&l.found)
		}
	}
}

// stop ends the goroutine, if there is one.
func (l *Loading) stop() {
	if l.handed != nil {
		close(l.handed)
		<-l.done
		l.handed = nil
	}
}

// End is called after the last row. It returns what is wrong with any of the rows, or an error if
// they are not the rows that the last commit left.
func (l *Loading) End() error {
	l.stop()
	l.verify(l.next)
	l.next = nil // bbolt keeps the Loading, through the function that opened the file
	if l.err != nil {
		return l.err
	}
	for _, table := range l.state.tables {
		if err := table.loaded(); err != nil {
			return err
		}
	}
	if found := l.found; found != l.left {
		return fmt.Errorf("%w: it has %d rows with the checksum %x, and its last commit left %d "+
			"with %x: the disk has lost a write", format.ErrCorrupt, found.Rows, found.Sum,
			l.left.Rows, l.left.Sum)
	}
	return nil
}

// Publish shows the rows to readers and to the OnMove hooks. There must have been no error.
func (l *Loading) Publish() {
	for _, table := range l.state.tables {
		table.tell()
	}
	l.state.taken = l.state.index
	l.state.published.Store(l.state.index)
}

// Discard drops what was read.
func (l *Loading) Discard() {
	l.stop()
	for _, table := range l.state.tables {
		table.clear()
	}
}

// add makes a leaf of rows that come next in the file, and returns it to be verified.
func (t *Table[T]) add(content *format.Chunk) page {
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
		if t.codec.ByKey() {
			continue
		}
		if err := t.insert(leaf); err != nil {
			return err
		}
	}
	if t.codec.ByKey() && len(read) > 0 {
		t.leaves.Store(newLeaves(read))
		t.order.fill(read)
	}
	return nil
}

// What is wrong with a row of a table that has another order in the file.
var (
	errPlace = errors.New("it is not where a row with its content lies")
	errTwice = errors.New("it is there twice, in two places")
)

// insert puts the rows of a leaf in their places, in a table whose rows have another order in the
// file than in memory.
func (t *Table[T]) insert(leaf *leaf[T]) error {
	at := 0
	for _, cells := range leaf.unfold() {
		for i := range cells {
			it, place := cells[i].item(), leaf.key(at)
			switch {
			case t.codec.Place(it.key, &it.version.row) != place:
				return format.RowError(t.codec.Table, place, errPlace)
			case t.order.get(it.key) != nil:
				return format.RowError(t.codec.Table, place, errTwice)
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
	t.order = newOrder[T]()
}
