package format

import "slices"

// Chunk is neighbouring rows of a table: key and value of each, one behind the other.
type Chunk struct {
	bytes []byte
	rows  []chunkRow
}

// chunkRow says where a row begins, and where its value does.
type chunkRow struct{ key, value uint32 }

// Add adds a row behind the others.
func (c *Chunk) Add(key, value []byte) {
	c.Found(len(c.bytes), len(key))
	c.bytes = append(append(c.bytes, key...), value...)
}

// Reset forgets the rows, and keeps their memory.
func (c *Chunk) Reset() { c.bytes, c.rows = c.bytes[:0], c.rows[:0] }

// Share forgets the rows. The rows that are found from now on are in these bytes, and fill them.
func (c *Chunk) Share(bytes []byte) { c.bytes, c.rows = bytes, c.rows[:0] }

// Found adds a row that begins at start, behind the row before.
func (c *Chunk) Found(start, keySize int) {
	c.rows = append(c.rows, chunkRow{uint32(start), uint32(start + keySize)})
}

// Clone returns a copy of the chunk, and a byte for each row in the same piece of memory.
func (c *Chunk) Clone() (copied Chunk, tags []byte) {
	count, end := len(c.rows), len(c.bytes)
	memory := append(make([]byte, 0, end+count), c.bytes...)
	return Chunk{memory[:end:end], slices.Clone(c.rows)}, memory[end : end+count]
}

// Len is the number of rows.
func (c *Chunk) Len() int { return len(c.rows) }

// Size is the number of their bytes.
func (c *Chunk) Size() int { return len(c.bytes) }

// Key returns the key of a row, which shares the chunk's memory.
func (c *Chunk) Key(i int) string {
	row := c.rows[i]
	return StringOf(c.bytes[row.key:row.value])
}

// At returns a row: the key, of keySize bytes, and behind it the value.
func (c *Chunk) At(i int) (row []byte, keySize int) {
	from, end := c.rows[i], len(c.bytes)
	if i+1 < len(c.rows) {
		end = int(c.rows[i+1].key)
	}
	return c.bytes[from.key:end:end], int(from.value - from.key)
}
