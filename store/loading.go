package store

import "unsafe"

// What is read from a file is made in pieces, since most of it stays: one is kept as long as one of
// the rows is that are in it. They grow with the table, up to a size of which the runtime gives
// memory without waste.
const (
	pieceBytes    = 8192
	pieceVersions = 63
	pieceCells    = 255
)

// leastPiece is how many rows the first piece is made for.
const leastPiece = 4

// grown is how large a piece is that follows so many rows.
func grown(rows, most int) int { return min(max(rows, leastPiece), most) }

// piecesAtATime is how many pieces of cells are hashed at a time.
const piecesAtATime = 8

// loading is what a table has of a file while that is read.
type loading[T any] struct {
	bytes    []byte       // a piece, as far as it is used
	versions []version[T] // the rest of a piece
	cells    [][]cell[T]  // pieces to be hashed, the last of which fills
	blocks   []block[T]   // in order, the last of which fills
	picked   []*T         // what the table's pick has chosen
	hashing  *hashing[T]  // nil: there are not many rows
}

// hashing is a goroutine that makes cells to be found, while the next are read: for each it has to
// wait for memory, about as long as reading takes.
type hashing[T any] struct {
	pieces chan [][]cell[T]
	done   chan struct{}
}

// load adds a row as the file has it, and returns its checksum. Rows come in the order of the file.
func (t *Table[T]) load(key, value []byte) (checksum uint32, err error) {
	payload, err := verify(t.number, key, value)
	if err != nil {
		return 0, rowError(t.number, string(key), err)
	}
	l := &t.loading
	place, payload := l.keep(key, payload, grown(t.size*len(key), pieceBytes))
	name := place
	if t.layout != nil {
		name = t.layout.key(place)
	}
	row, err := t.codec.decode(name, payload)
	if err != nil {
		return 0, rowError(t.number, place, err)
	}
	v := l.version(grown(t.size, pieceVersions))
	v.row, v.index, v.checksum, v.byKey = row, FirstIndex, storedChecksum(value), name == place
	if t.layout == nil {
		l.order(item[T]{name, v})
	} else if err := t.insert(item[T]{name, v}, place); err != nil {
		return 0, rowError(t.number, place, err)
	}
	c := t.cell()
	c.key = name
	c.head.Store(v)
	if t.pick != nil && t.pick(&v.row) {
		l.picked = append(l.picked, &v.row)
	}
	t.size++
	return v.checksum, nil
}

// keep copies what a row is made of, to a new piece of that size if it has to be.
func (l *loading[T]) keep(key, payload []byte, size int) (string, []byte) {
	need := len(key) + len(payload)
	if need > cap(l.bytes)-len(l.bytes) {
		if need > size/4 {
			piece := append(append(make([]byte, 0, need), key...), payload...)
			return stringOf(piece[:len(key)]), piece[len(key):]
		}
		l.bytes = make([]byte, 0, size)
	}
	start := len(l.bytes)
	l.bytes = append(append(l.bytes, key...), payload...)
	kept := l.bytes[start:]
	return stringOf(kept[:len(key)]), kept[len(key):]
}

// version returns one to be filled, of a new piece of that size if it has to be.
func (l *loading[T]) version(size int) *version[T] {
	if len(l.versions) == 0 {
		l.versions = make([]version[T], size)
	}
	v := &l.versions[0]
	l.versions = l.versions[1:]
	return v
}

// cell returns one to be filled.
func (t *Table[T]) cell() *cell[T] {
	l := &t.loading
	last := len(l.cells) - 1
	if last < 0 || len(l.cells[last]) == cap(l.cells[last]) {
		if len(l.cells) == piecesAtATime {
			t.handOver()
		}
		l.cells = append(l.cells, make([]cell[T], 0, grown(t.size, pieceCells)))
		last = len(l.cells) - 1
	}
	piece := &l.cells[last]
	*piece = (*piece)[:len(*piece)+1]
	return &(*piece)[len(*piece)-1]
}

// handOver has the pieces hashed, which are full.
func (t *Table[T]) handOver() {
	l := &t.loading
	if l.hashing == nil {
		l.hashing = &hashing[T]{make(chan [][]cell[T], 4), make(chan struct{})}
		go l.hashing.run(&t.cells, t.size+int(t.store.unread()))
	}
	l.hashing.pieces <- l.cells
	l.cells = nil
}

// run adds the cells to the hash, in which there will be no more than so many.
func (h *hashing[T]) run(to *cells[T], most int) {
	defer close(h.done)
	to.fit(most)
	count := 0
	for pieces := range h.pieces {
		for _, piece := range pieces {
			to.fill(piece)
			count += len(piece)
		}
	}
	if count < most/2 { // there are as many rows in other tables
		to.fit(count)
	}
}

func (h *hashing[T]) end() {
	if h != nil {
		close(h.pieces)
		<-h.done
	}
}

// order puts a row behind all others.
func (l *loading[T]) order(it item[T]) {
	first, room := "", 1
	if last := len(l.blocks) - 1; last >= 0 {
		into := l.blocks[last].rows
		if len(into.items) < blockRows {
			into.items = append(into.items, it)
			return
		}
		first, room = it.key, blockRows
	}
	items := append(make([]item[T], 0, room), it)
	l.blocks = append(l.blocks, block[T]{first, &rows[T]{items: items}})
}

// insert puts a row, found at that place, among those that came before, in a table whose rows have
// another order in the file.
func (t *Table[T]) insert(it item[T], place string) error {
	switch {
	case t.place(it.key, it.version) != place:
		return errPlace
	case t.order.get(it.key) != nil:
		return errTwice
	}
	t.order.set(it)
	return nil
}

// loaded ends the loading: the rows are found from now on.
func (t *Table[T]) loaded() {
	l := &t.loading
	l.hashing.end()
	for _, piece := range l.cells {
		t.cells.fill(piece)
	}
	t.order.fill(l.blocks)
	t.loading = loading[T]{picked: l.picked}
	if t.moved != nil {
		t.order.ascend("", func(it item[T]) bool {
			t.moved(nil, it.version.live())
			return true
		})
	}
}

// clear drops what was loaded.
func (t *Table[T]) clear() {
	t.loading.hashing.end()
	t.loading, t.size = loading[T]{}, 0
	t.cells = cells[T]{seed: t.cells.seed}
	if t.order.size > 0 {
		t.order = newOrder[T]()
	}
}

// stringOf returns the bytes, which nobody changes, as a string.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
