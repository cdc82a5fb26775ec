package hub

// Cursor is how far a watcher has read. It may lie between two events of one index, and is then
// good only for the hub that it comes from. The zero value is before everything.
type Cursor struct {
	index    uint64 // everything with this index or a lower one has been read
	sequence uint64 // and so have all events below this number; 0 if the index says it all
}

// After returns the cursor of a watcher that knows everything up to index, and nothing after it.
func After(index uint64) Cursor { return Cursor{index: index} }

// Advance returns the cursor moved on to index, for a watcher that knows that nothing in scope was
// missed by that. It never moves a cursor back.
func (c Cursor) Advance(index uint64) Cursor {
	if index <= c.index {
		return c
	}
	return After(index)
}
