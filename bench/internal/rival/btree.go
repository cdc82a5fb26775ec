package rival

import "github.com/google/btree"

const treeDegree = 32

// Tree is a raw tree of rows in memory: no transactions, no readers beside the writer, no lock.
type Tree struct {
	rows  *btree.BTreeG[row]
	index uint64
}

// TreeSettings says how a Tree is set.
func TreeSettings() string {
	return "raw btree: google/btree " + Version("github.com/google/btree") +
		", BTreeG of 40-byte structs, degree 32, a function for less that is inlined where it " +
		"can be"
}

// NewTree returns a tree that has a row for each key.
func NewTree(keys []string) *Tree {
	t := &Tree{rows: btree.NewG(treeDegree, func(a, b row) bool { return a.key < b.key })}
	for _, key := range keys {
		t.set(key, [16]byte{})
	}
	return t
}

func (t *Tree) set(key string, holder [16]byte) {
	t.index++
	t.rows.ReplaceOrInsert(row{key: key, holder: holder, index: t.index})
}

// Pair sets the key's row twice.
func (t *Tree) Pair(key string) {
	t.set(key, someone)
	t.set(key, [16]byte{})
}

// Get reports whether there is a row for the key.
func (t *Tree) Get(key string) bool {
	_, found := t.rows.Get(row{key: key})
	return found
}
