package store

import "github.com/google/btree"

const memtableDegree = 32

// memtable is the newest row of each place that some records have.
type memtable struct{ rows *btree.BTreeG[rowWrite] }

func newMemtable() *memtable { return &memtable{btree.NewG(memtableDegree, rowWrite.before)} }

func (m *memtable) len() int { return m.rows.Len() }

// has reports whether there is a row of the place, or that it was deleted.
func (m *memtable) has(row rowWrite) bool { return m.rows.Has(row) }

// add puts rows in the place of those that were there.
func (m *memtable) add(rows []rowWrite) {
	for _, row := range rows {
		m.rows.ReplaceOrInsert(row)
	}
}

// list returns the rows, in order.
func (m *memtable) list() []rowWrite {
	rows := make([]rowWrite, 0, m.len())
	m.rows.Ascend(func(row rowWrite) bool {
		rows = append(rows, row)
		return true
	})
	return rows
}

// after calls fn with the rows behind that place, in order, until it returns false.
func (m *memtable) after(place rowWrite, fn func(row rowWrite) bool) {
	m.rows.AscendGreaterOrEqual(place, func(row rowWrite) bool {
		return !place.before(row) || fn(row)
	})
}
