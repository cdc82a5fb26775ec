package table

import (
	"fmt"
	"github.com/lockd/lockd/store/internal/format"
)

// place returns where in the file the version lies, or is to lie.
func (t *Table[T]) place(key string, v *version[T]) string {
	if v.byKey {
		return key
	}
	return t.codec.Place(key, &v.row)
}

// mustHave panics if no file could have a row under the key: it would fail the whole batch.
func (t *Table[T]) mustHave(key string) {
	if !t.codec.Fits(key) {
		panic(fmt.Sprintf("store: a key of %d bytes in %s", len(key),
			format.TableName(t.codec.Table)))
	}
}
