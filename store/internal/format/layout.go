package format

import (
	"encoding/binary"

	"github.com/lockd/lockd/internal/schema"
)

// layout says where in the file the rows of a table lie that do not lie under their keys.
//
// It is for rows that come and go, in the order of their indexes: then those of one commit are
// neighbours, and so are, as a rule, those that go in one. By their keys nearly each would be on a
// page of its own, which a commit would have to write for it.
type layout[T any] struct {
	ahead int // bytes of a place before the key
	place func(key string, row *T) string
	key   func(place string) string // the place itself, if it is none
}

// ByKey reports whether the rows lie under their keys, in their order.
func (r *Rows[T]) ByKey() bool { return r.layout == nil }

// Place returns where the row is to lie.
func (r *Rows[T]) Place(key string, row *T) string {
	if r.layout == nil {
		return key
	}
	return r.layout.place(key, row)
}

// Key returns the key of a row that lies at the place. Of a place that is none it returns anything:
// no row has that place.
func (r *Rows[T]) Key(place string) string {
	if r.layout == nil {
		return place
	}
	return r.layout.key(place)
}

// Fits reports whether a file can have a row of the key.
func (r *Rows[T]) Fits(key string) bool {
	size := len(key)
	if r.layout != nil {
		size += r.layout.ahead
	}
	return size > 0 && size <= schema.KeyLimit
}

const indexSize = 8

// placeByIndex is the place of a row that lies by its index.
func placeByIndex(prefix string, index uint64, key string) string {
	place := make([]byte, 0, len(prefix)+indexSize+len(key))
	place = binary.BigEndian.AppendUint64(append(place, prefix...), index)
	return string(append(place, key...))
}

// marked is what some places begin with, in front of an index and a key.
const marked = "\xff"

func placeMarked(index uint64, key string) string { return placeByIndex(marked, index, key) }

// markedKey returns the key of a row whose place is marked.
func markedKey(place string) string {
	if len(place) >= len(marked)+indexSize && place[:len(marked)] == marked {
		return place[len(marked)+indexSize:]
	}
	return place
}

// graveLayout marks its places with a number that no kind has.
var graveLayout = layout[schema.Grave]{
	ahead: len(marked) + indexSize,
	place: func(key string, row *schema.Grave) string { return placeMarked(row.Index, key) },
	key:   markedKey,
}

var delayLayout = layout[schema.Delay]{
	ahead: len(marked) + indexSize,
	place: func(key string, row *schema.Delay) string { return placeMarked(row.Index, key) },
	key:   markedKey,
}

// shareLayout lies by the index of the grant.
var shareLayout = layout[schema.Share]{
	ahead: len(marked) + indexSize,
	place: func(key string, row *schema.Share) string { return placeMarked(row.Fence(), key) },
	key:   markedKey,
}

// sessionLayout knows a place by its length, which an ID does not have.
var sessionLayout = layout[schema.Session]{
	ahead: indexSize,
	place: func(id string, row *schema.Session) string {
		return placeByIndex("", row.CreateIndex, id)
	},
	key: func(place string) string {
		if len(place) == indexSize+len(schema.ID{}) {
			return place[indexSize:]
		}
		return place
	},
}
