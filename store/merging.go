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
func (l *logged) mergedBy(reader rowReader) rowReader {
	if l.empty() {
		return reader
	}
	return &merging{reader, l.list()}
}

// leaf implements rowReader. A page to which the log has nothing passes as it is.
func (m *merging) leaf(table byte, content []byte) {
	count := elementCount(content)
	if table != tableKeys || count == 0 {
		m.rowReader.leaf(table, content)
		return
	}
	n, last := 0, stringOf(elementAt(content, count-1).key)
	for n < len(m.log) && m.log[n].key <= last {
		n++
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
	m.give(rows)
}

// end implements rowReader. What is left of the log is behind all pages of keys.
func (m *merging) end() error {
	m.give(m.log)
	return m.rowReader.end()
}

// give makes pages of the rows, but for those that were deleted.
func (m *merging) give(rows []rowWrite) {
	kept := rows[:0]
	for _, row := range rows {
		if row.value != nil {
			kept = append(kept, row)
		}
	}
	for len(kept) > 0 {
		n := min(mergedRows, len(kept))
		m.rowReader.leaf(tableKeys, makeLeafPage(kept[:n]))
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
