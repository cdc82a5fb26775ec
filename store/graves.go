package store

import (
	"cmp"

	"github.com/google/btree"
	"github.com/lockd/lockd/internal/schema"
)

// GraveLimit is how many tombstones are kept at least. Of the older ones only the highest index
// stays, under the mark [FloorMark].
const GraveLimit = 10_000

// graveSurplus is how many more there may be before they are dropped together: each time that
// happens, the floor rises, and with it the index of everything that is absent.
const graveSurplus = 500

// FloorMark names the mark that holds the highest index of the tombstones that were dropped.
const FloorMark = "floor"

// graves is the table of tombstones, with the order in which they were dug.
type graves struct {
	store *Store
	table Table[schema.Grave]
	byAge *btree.BTreeG[schema.Grave]
}

func (g *graves) init(s *Store) {
	g.store = s
	g.table.init(s, tableGraves, graveCodec)
	g.table.layout = &graveLayout
	g.byAge = btree.NewG(treeDegree, older)
	g.table.OnMove(func(old, new *schema.Grave) {
		if old != nil {
			g.byAge.Delete(*old)
		}
		if new != nil {
			g.byAge.ReplaceOrInsert(*new)
		}
	})
}

// older reports whether a was dug before b. Their names are seldom looked at: they lie elsewhere.
func older(a, b schema.Grave) bool {
	if a.Index != b.Index {
		return a.Index < b.Index
	}
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) < 0
}

// GraveKey is the key of a tombstone's row. The kind is not 255.
func GraveKey(kind byte, name string) string { return string([]byte{kind}) + name }

// Bury writes the tombstone of what the running transaction deletes. The oldest beyond
// [GraveLimit] are dropped from time to time.
func (s *Store) Bury(kind byte, name string) {
	g := &s.graves
	g.table.Put(GraveKey(kind, name), schema.Grave{Kind: kind, Name: name, Index: s.Next()})
	if g.table.Len() <= GraveLimit+graveSurplus {
		return
	}
	var oldest schema.Grave
	for g.table.Len() > GraveLimit {
		oldest, _ = g.byAge.Min()
		g.table.Delete(GraveKey(oldest.Kind, oldest.Name))
	}
	s.Marks.Put(FloorMark, schema.Mark{Name: FloorMark, Index: oldest.Index})
}

// Buried returns the tombstone of the name, or nil.
func (s *Snapshot) Buried(kind byte, name string) *schema.Grave {
	return s.Graves.Get(GraveKey(kind, name))
}
