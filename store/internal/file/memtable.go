package file

import (
	"github.com/google/btree"
	"github.com/lockd/lockd/store/internal/format"
)

const memtableDegree = 32

// memtable has the newest row of each place in some records, deleted rows included.
type memtable struct{ *btree.BTreeG[format.Write] }

func newMemtable() *memtable { return &memtable{btree.NewG(memtableDegree, format.Write.Before)} }

// add puts rows in the place of those that were there.
func (m *memtable) add(rows []format.Write) {
	for _, row := range rows {
		m.ReplaceOrInsert(row)
	}
}

// list returns the rows, in order.
func (m *memtable) list() []format.Write {
	rows := make([]format.Write, 0, m.Len())
	m.Ascend(func(row format.Write) bool {
		rows = append(rows, row)
		return true
	})
	return rows
}

// after calls fn with the rows behind that place, in order, until it returns false.
func (m *memtable) after(place format.Write, fn func(row format.Write) bool) {
	m.AscendGreaterOrEqual(place, func(row format.Write) bool {
		return !place.Before(row) || fn(row)
	})
}
