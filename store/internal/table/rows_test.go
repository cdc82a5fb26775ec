package table_test

import (
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// Ensure that a row is found by its key alone in a table whose rows do not have their keys: as it
// is published, as it is newest, after it was deleted, and when it is there again.
func TestTable_RowsWithoutTheirKeys(t *testing.T) {
	s := store.New()
	end := func() {
		s.Seal()
		s.PublishMemory()
	}
	wants := func(what string, published, newest uint64) {
		t.Helper()
		index := func(row *schema.Service) uint64 {
			if row == nil {
				return 0
			}
			return row.ModifyIndex
		}
		if got := index(s.Services.Get("n\x00s")); got != published {
			t.Errorf("%s: row %d is published, want %d", what, got, published)
		}
		if got := index(s.Services.Newest("n\x00s")); got != newest {
			t.Errorf("%s: row %d is the newest, want %d", what, got, newest)
		}
		if s.Services.Get("n\x00t") != nil || s.Services.Newest("n") != nil {
			t.Errorf("%s: a row is there that was never written", what)
		}
	}
	put := func(index uint64) { s.Services.Put("n\x00s", schema.Service{ModifyIndex: index}) }
	wants("before", 0, 0)
	put(1)
	wants("written", 0, 1)
	end()
	wants("published", 1, 1)
	put(2)
	wants("written again", 1, 2)
	s.Undo()
	wants("undone", 1, 1)
	s.Services.Delete("n\x00s")
	wants("deleted", 1, 0)
	end()
	wants("deletion published", 0, 0)
	put(3)
	end()
	wants("there again", 3, 3)
}
