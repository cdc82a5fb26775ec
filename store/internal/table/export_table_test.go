package table

import "weak"

// Cells is how many cells the table's hash has.
func (t *Table[T]) Cells() int {
	n := 0
	if shards := t.cells.shards.Load(); shards != nil {
		for i := range shards {
			n += shards[i].live
		}
	}
	return n
}

// Leaves is the number of pages of rows that are as they were read.
func (t *Table[T]) Leaves() int {
	if leaves := t.leaves.Load(); leaves != nil {
		return leaves.left
	}
	return 0
}

// Firsts returns the first key of each page that was read.
func (t *Table[T]) Firsts() []string { return t.leaves.Load().firsts }

// LeafMemory points at what is kept of each page that was read.
func (t *Table[T]) LeafMemory() []weak.Pointer[byte] {
	var memory []weak.Pointer[byte]
	leaves := t.leaves.Load()
	for i := range leaves.places {
		row, _ := leaves.places[i].Load().content.At(0)
		memory = append(memory, weak.Make(&row[0]))
	}
	return memory
}
