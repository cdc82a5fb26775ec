package schema

// FirstIndex is the index of a database without rows. The first write gets the next one.
const FirstIndex = 1

// GraveLimit is how many tombstones are kept at least. Of the older ones only the highest index
// stays, under the mark [FloorMark].
const GraveLimit = 10_000

// FloorMark names the mark that holds the highest index of the tombstones that were dropped.
const FloorMark = "floor"

// GraveKey is the key of a tombstone's row. The kind is not 255.
func GraveKey(kind byte, name string) string { return string([]byte{kind}) + name }
