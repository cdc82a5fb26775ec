package store

import (
	"fmt"

	"github.com/lockd/lockd/internal/schema"
)

// place returns where in the file the version lies, or is to lie.
func (t *Table[T]) place(key string, v *version[T]) string {
	if t.layout == nil || v.byKey {
		return key
	}
	return t.layout.place(key, &v.row)
}

// keyAt returns the key of a row that lies at the place.
func (t *Table[T]) keyAt(place string, payload []byte) string {
	if t.layout == nil {
		return place
	}
	return t.layout.key(place, payload)
}

// mustHave panics if no file could have a row under the key: it would fail the whole batch.
func (t *Table[T]) mustHave(key string) {
	size := len(key)
	if t.layout != nil {
		size += t.layout.ahead
	}
	if size == 0 || size > schema.KeyLimit {
		panic(fmt.Sprintf("store: a key of %d bytes in %s", len(key), tableName(t.number)))
	}
}
