package table

import (
	"iter"
	"slices"
	"strings"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store/internal/format"
)

// Snapshot is the published state at one index. It is immutable; any number of goroutines may
// read it, for as long as they like.
type Snapshot struct {
	index uint64

	Keys        View[schema.Key]
	Sessions    View[schema.Session]
	Nodes       View[schema.Node]
	Services    View[schema.Service]
	Checks      View[schema.Check]
	Attachments View[schema.Attachment]
	Delays      View[schema.Delay]
	Graves      View[schema.Grave]
	Marks       View[schema.Mark]
	Shares      View[schema.Share]
}

// Index is the index of the last transaction that the snapshot has.
func (s *Snapshot) Index() uint64 { return s.index }

// Mark returns the index that stands under the name, or 0.
func (s *Snapshot) Mark(name string) uint64 {
	if mark := s.Marks.Get(name); mark != nil {
		return mark.Index
	}
	return 0
}

// View is one table of a snapshot. Rows are shared: do not change them.
type View[T any] struct{ order order[T] }

// made reports whether the view is not the zero View.
func (v *View[T]) made() bool { return v.order.tree != nil }

// Get returns the row of the key, or nil.
func (v View[T]) Get(key string) *T { return v.order.get(key) }

// Len is the number of rows.
func (v View[T]) Len() int { return v.order.size }

// Prefix yields the rows whose keys begin with the prefix, in order.
func (v View[T]) Prefix(prefix string) iter.Seq2[string, *T] {
	return within(prefix, v.Ascend(prefix))
}

// within ends a walk that began at the prefix after the last key with that prefix.
func within[T any](prefix string, rows iter.Seq2[string, *T]) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		for key, row := range rows {
			if !strings.HasPrefix(key, prefix) || !yield(key, row) {
				return
			}
		}
	}
}

// Ascend yields the rows from the key on, in order of their keys.
func (v View[T]) Ascend(from string) iter.Seq2[string, *T] {
	return func(yield func(string, *T) bool) {
		v.order.ascend(from, yield)
	}
}

// Writes yields all rows as a file has them, table by table and in order.
func (s *Snapshot) Writes() iter.Seq[format.Write] {
	return func(yield func(format.Write) bool) {
		_ = writes(&format.KeyRows, s.Keys, yield) &&
			writes(&format.SessionRows, s.Sessions, yield) &&
			writes(&format.NodeRows, s.Nodes, yield) &&
			writes(&format.ServiceRows, s.Services, yield) &&
			writes(&format.CheckRows, s.Checks, yield) &&
			writes(&format.AttachmentRows, s.Attachments, yield) &&
			writes(&format.DelayRows, s.Delays, yield) &&
			writes(&format.GraveRows, s.Graves, yield) &&
			writes(&format.MarkRows, s.Marks, yield) &&
			writes(&format.ShareRows, s.Shares, yield)
	}
}

// writes yields the rows of one table, and reports whether yield wants more.
func writes[T any](
	codec *format.Rows[T], view View[T], yield func(format.Write) bool,
) bool {
	var others []format.Write // of a table that has another order in the file
	for key, row := range view.Ascend("") {
		w := format.Write{Table: codec.Table, Key: codec.Place(key, row)}
		w.Value = codec.Append(nil, w.Key, row)
		if !codec.ByKey() {
			others = append(others, w)
		} else if !yield(w) {
			return false
		}
	}
	slices.SortFunc(others, byPlace)
	for _, w := range others {
		if !yield(w) {
			return false
		}
	}
	return true
}
