package table

import (
	"cmp"

	"github.com/google/btree"
	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store/internal/format"
)

// graveSurplus is how many tombstones beyond the limit there may be before they are dropped
// together. Each time the floor rises, and with it the index of what is absent.
const graveSurplus = 500

// graves is the table of tombstones, with the order in which they were dug.
type graves struct {
	table Table[schema.Grave]
	byAge *btree.BTreeG[schema.Grave]
}

func (g *graves) init(s *State) {
	g.table.init(s, &format.GraveRows)
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

// older reports whether a was dug before b. It looks at the names last, because fetching them takes
// time.
func older(a, b schema.Grave) bool {
	if a.Index != b.Index {
		return a.Index < b.Index
	}
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) < 0
}

// Bury writes the tombstone of something that the running transaction deletes. From time to time it
// drops the oldest tombstones beyond [schema.GraveLimit].
func (s *State) Bury(kind byte, name string) {
	g := &s.graves
	g.table.Put(schema.GraveKey(kind, name), schema.Grave{Kind: kind, Name: name, Index: s.Next()})
	if g.table.Len() <= schema.GraveLimit+graveSurplus {
		return
	}
	var oldest schema.Grave
	for g.table.Len() > schema.GraveLimit {
		oldest, _ = g.byAge.Min()
		g.table.Delete(schema.GraveKey(oldest.Kind, oldest.Name))
	}
	s.Marks.Put(schema.FloorMark, schema.Mark{Name: schema.FloorMark, Index: oldest.Index})
}

// Buried returns the tombstone of the name, or nil.
func (s *Snapshot) Buried(kind byte, name string) *schema.Grave {
	return s.Graves.Get(schema.GraveKey(kind, name))
}
