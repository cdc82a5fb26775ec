package store

// merging is a rowReader that gets the rows of a file's tables, and gives another one those of the
// log in their places.
type merging struct {
	rowReader
	log    []rowWrite // what is left of it, in order
	table  byte       // of the rows that are merged, and not given yet
	merged chunk
}

// mergedSize is how many bytes of rows a chunk has that is made here, before the last row.
const mergedSize = 2 << 10

// rows implements rowReader. A chunk to which the log has nothing passes as it is.
func (m *merging) Rows(table byte, c *chunk) {
	m.passBefore(rowWrite{table: table})
	last := rowWrite{table: table, key: c.key(c.len() - 1)}
	if len(m.log) == 0 || last.before(m.log[0]) {
		m.give()
		m.rowReader.Rows(table, c)
		return
	}
	for i := range c.len() {
		raw, keySize := c.at(i)
		row := rowWrite{table: table, key: stringOf(raw[:keySize]), value: raw[keySize:]}
		m.passBefore(row)
		if len(m.log) > 0 && !row.before(m.log[0]) { // it is the same row
			row, m.log = m.log[0], m.log[1:]
		}
		m.add(row)
	}
	m.give()
}

// passBefore adds the rows of the log before that one.
func (m *merging) passBefore(row rowWrite) {
	for len(m.log) > 0 && m.log[0].before(row) {
		m.add(m.log[0])
		m.log = m.log[1:]
	}
}

// add adds a row to those that are merged, unless it was deleted.
func (m *merging) add(row rowWrite) {
	if row.table != m.table || len(m.merged.bytes) >= mergedSize {
		m.give()
		m.table = row.table
	}
	if row.value != nil {
		m.merged.add(bytesOf(row.key), row.value)
	}
}

// give gives the other reader what is merged.
func (m *merging) give() {
	if m.merged.len() > 0 {
		m.rowReader.Rows(m.table, &m.merged)
		m.merged.reset()
	}
}

// end implements rowReader.
func (m *merging) End() error {
	m.passBefore(rowWrite{table: tableCount})
	m.give()
	return m.rowReader.End()
}
