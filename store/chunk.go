package store

// chunk is neighbouring rows of a table as a file has them: key and value of each, one behind the
// other.
type chunk struct {
	bytes []byte
	rows  []chunkRow
}

// chunkRow says where a row begins, and where its value does.
type chunkRow struct{ key, value uint32 }

// add adds a row behind the others.
func (c *chunk) add(key, value []byte) {
	start := len(c.bytes)
	c.rows = append(c.rows, chunkRow{uint32(start), uint32(start + len(key))})
	c.bytes = append(append(c.bytes, key...), value...)
}

// reset forgets the rows, and keeps their memory.
func (c *chunk) reset() { c.bytes, c.rows = c.bytes[:0], c.rows[:0] }

// len is the number of rows.
func (c *chunk) len() int { return len(c.rows) }

// key returns the key of a row, which shares the chunk's memory.
func (c *chunk) key(i int) string {
	row := c.rows[i]
	return stringOf(c.bytes[row.key:row.value])
}

// at returns a row: the key, which has that size, and behind it the value.
func (c *chunk) at(i int) (row []byte, keySize int) {
	from, end := c.rows[i], len(c.bytes)
	if i+1 < len(c.rows) {
		end = int(c.rows[i+1].key)
	}
	return c.bytes[from.key:end:end], int(from.value - from.key)
}
