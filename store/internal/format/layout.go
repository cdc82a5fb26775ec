package format

import (
	"encoding/binary"
	"strings"

	"github.com/lockd/lockd/internal/schema"
)

// layout says where in the file the rows of a table are, if they are not under their keys.
//
// It is for rows that come and go, in the order of their indexes: then the rows that one commit
// adds are neighbours, and so are, as a rule, the rows that one commit deletes. By their keys
// nearly every row would be on a page of its own, which a commit would have to write for that row.
// The place of such a row is a mark, its index and its key. A place that does not begin with the
// mark, or is too short, is the key itself.
type layout struct {
	mark  string
	least int // bytes of a place with an index
}

const indexSize = 8

// ahead is how many bytes of a place come before the key.
func (l *layout) ahead() int { return len(l.mark) + indexSize }

// ByKey reports whether the rows lie under their keys, in their order.
func (r *Rows[T]) ByKey() bool { return r.layout == nil }

// Place returns where the row is to lie.
func (r *Rows[T]) Place(key string, row *T) string {
	l := r.layout
	if l == nil {
		return key
	}
	place := append(make([]byte, 0, l.ahead()+len(key)), l.mark...)
	return string(append(binary.BigEndian.AppendUint64(place, r.index(row)), key...))
}

// Key returns the key of the row at the place. For an invalid place, which no row has, the result
// means nothing.
func (r *Rows[T]) Key(place string) string {
	l := r.layout
	if l == nil || len(place) < l.least || !strings.HasPrefix(place, l.mark) {
		return place
	}
	return place[l.ahead():]
}

// Fits reports whether a file can have a row of the key.
func (r *Rows[T]) Fits(key string) bool {
	size := len(key)
	if r.layout != nil {
		size += r.layout.ahead()
	}
	return size > 0 && size <= schema.KeyLimit
}

// markedLayout has a number that no kind of tombstone has.
var markedLayout = layout{mark: "\xff", least: len("\xff") + indexSize}

// sessionLayout tells a place from a key by its length: an ID is shorter.
var sessionLayout = layout{least: indexSize + len(schema.ID{})}
