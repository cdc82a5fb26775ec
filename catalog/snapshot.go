package catalog

import (
	"iter"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/store"
)

// Snapshot is the catalog as a lockd.Snapshot shows it. It is immutable, and may be used by any
// number of goroutines. The zero value is not usable.
type Snapshot struct{ rows *store.Snapshot }

// NewSnapshot is for lockd.Snapshot.Catalog. Programs call that.
func NewSnapshot(rows *store.Snapshot) *Snapshot { return &Snapshot{rows} }

// within is the prefix of what belongs to a node.
func within(node string) string {
	if node == "" {
		return ""
	}
	return engine.CatalogKey(node, "")
}

// value converts a row, and reports whether there is one.
func value[T, V any](row *T, convert func(*T) V) (v V, exists bool) {
	if row == nil {
		return v, false
	}
	return convert(row), true
}

func values[T, V any](rows iter.Seq2[string, *T], convert func(*T) V) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, row := range rows {
			if !yield(convert(row)) {
				return
			}
		}
	}
}
