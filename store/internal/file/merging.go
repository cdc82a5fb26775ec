package file

import "github.com/lockd/lockd/store/internal/format"

// merging is a Reader that takes the rows of a file's tables, and gives them to another Reader,
// with the rows of the log in their places.
type merging struct {
	Reader
	log    []format.Write // the rows of the log that are left, in order
	table  byte           // of the rows that are merged, and not given yet
	merged format.Chunk
}

// mergedSize limits a merged chunk: before its last row, it has fewer bytes than that.
const mergedSize = 2 << 10

// Rows implements Reader. A chunk in which the log changes nothing passes as it is.
func (m *merging) Rows(table byte, c *format.Chunk) {
	last := format.Write{Table: table, Key: c.Key(c.Len() - 1)}
	if len(m.log) == 0 || last.Before(m.log[0]) {
		m.give()
		m.Reader.Rows(table, c)
		return
	}
	for i := range c.Len() {
		raw, keySize := c.At(i)
		row := format.Write{Table: table, Key: format.StringOf(raw[:keySize]), Value: raw[keySize:]}
		m.passBefore(row)
		if len(m.log) > 0 && !row.Before(m.log[0]) { // it is the same row
			row, m.log = m.log[0], m.log[1:]
		}
		m.add(row)
	}
}

// passBefore adds the rows of the log before that one.
func (m *merging) passBefore(row format.Write) {
	for len(m.log) > 0 && m.log[0].Before(row) {
		m.add(m.log[0])
		m.log = m.log[1:]
	}
}

// add adds a row to those that are merged, unless it was deleted.
func (m *merging) add(row format.Write) {
	if row.Table != m.table || m.merged.Size() >= mergedSize {
		m.give()
		m.table = row.Table
	}
	if row.Value != nil {
		m.merged.Add(format.BytesOf(row.Key), row.Value)
	}
}

// give gives the other reader what is merged.
func (m *merging) give() {
	if m.merged.Len() > 0 {
		m.Reader.Rows(m.table, &m.merged)
		m.merged.Reset()
	}
}

// End implements Reader.
func (m *merging) End() error {
	m.passBefore(format.Write{Table: format.TableCount})
	m.give()
	return m.Reader.End()
}
