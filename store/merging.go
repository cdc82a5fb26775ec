package store

import "encoding/binary"

// merging is a rowReader that gets the pages of a file as they are, and gives another one the rows
// of the log in their places.
type merging struct {
	rowReader
	log []rowWrite // what is left of it, in order
}

// mergedRows is how many rows a page has at most that is made here.
const mergedRows = 64

// mergedBy returns a reader that gives the other one the rows of the log too.
func mergedBy(log []rowWrite, reader rowReader) rowReader {
	if len(log) == 0 {
		return reader
	}
	return &merging{reader, log}
}

// leaf implements rowReader. A page to which the log has nothing passes as it is.
func (m *merging) leaf(table byte, content []byte) {
	m.skipTo(table)
	count := elementCount(content)
	n := 0
	if count > 0 {
		last := rowWrite{table: table, key: stringOf(elementAt(content, count-1).key)}
		for n < len(m.log) && !last.before(m.log[n]) {
			n++
		}
	}
	if n == 0 {
		m.rowReader.leaf(table, content)
		return
	}
	rows, log := make([]rowWrite, 0, count+n), m.log[:n]
	m.log = m.log[n:]
	for i := range count {
		e := elementAt(content, i)
		key := stringOf(e.key)
		for len(log) > 0 && log[0].key < key {
			rows, log = append(rows, log[0]), log[1:]
		}
		if len(log) > 0 && log[0].key == key {
			rows, log = append(rows, log[0]), log[1:]
			continue
		}
		rows = append(rows, rowWrite{table: table, key: key, value: e.value})
	}
	m.give(table, rows)
}

// skipTo gives what the log has of the tables before that one, behind all their pages.
func (m *merging) skipTo(table byte) {
	for len(m.log) > 0 && m.log[0].table < table {
		n, first := 0, m.log[0].table
		for n < len(m.log) && m.log[n].table == first {
			n++
		}
		m.give(first, m.log[:n])
		m.log = m.log[n:]
	}
}

// end implements rowReader.
func (m *merging) end() error {
	m.skipTo(tableCount)
	return m.rowReader.end()
}

// give makes pages of the rows, but for those that were deleted.
func (m *merging) give(table byte, rows []rowWrite) {
	kept := rows[:0]
	for _, row := range rows {
		if row.value != nil {
			kept = append(kept, row)
		}
	}
	for len(kept) > 0 {
		n := min(mergedRows, len(kept))
		m.rowReader.leaf(table, makeLeafPage(kept[:n]))
		kept = kept[n:]
	}
}

// makeLeafPage returns the content of a leaf page of bbolt's with these rows.
func makeLeafPage(rows []rowWrite) []byte {
	order := binary.NativeEndian
	size := headSize + len(rows)*elementSize
	for _, row := range rows {
		size += len(row.key) + len(row.value)
	}
	page := make([]byte, headSize+len(rows)*elementSize, size)
	order.PutUint16(page[8:], leafFlag)
	order.PutUint16(page[10:], uint16(len(rows)))
	for i, row := range rows {
		start := headSize + i*elementSize
		order.PutUint32(page[start+4:], uint32(len(page)-start))
		order.PutUint32(page[start+8:], uint32(len(row.key)))
		order.PutUint32(page[start+12:], uint32(len(row.value)))
		page = append(append(page, row.key...), row.value...)
	}
	return page
}
