package consulapi

import (
	"iter"
	"slices"
)

// collateSize is how many names collated keeps at a time.
const collateSize = 512

// collated yields each name, in order, with what the rows of that name join to. It keeps at most
// collateSize names, and goes through the rows once for every collateSize names, so that a long
// list takes no more memory than a short one.
func collated[R, V any](
	rows iter.Seq[R], name func(R) string, join func(joined V, row R) V,
) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for last, first := "", true; ; first = false {
			names, joined := make([]string, 0, collateSize), make(map[string]V)
			for row := range rows {
				key := name(row)
				if !first && key <= last {
					continue
				}
				at, found := slices.BinarySearch(names, key)
				switch {
				case found:
				case at == collateSize:
					continue // a later pass yields it
				case len(names) == collateSize:
					delete(joined, names[collateSize-1])
					names = names[:collateSize-1]
					fallthrough
				default:
					names = slices.Insert(names, at, key)
				}
				joined[key] = join(joined[key], row)
			}
			for _, key := range names {
				if !yield(key, joined[key]) {
					return
				}
			}
			if len(names) < collateSize {
				return
			}
			last = names[len(names)-1]
		}
	}
}

// inOrder yields the names of the rows, each once, in order.
func inOrder[R any](rows iter.Seq[R], name func(R) string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for key := range collated(rows, name, func(none struct{}, _ R) struct{} { return none }) {
			if !yield(key) {
				return
			}
		}
	}
}
