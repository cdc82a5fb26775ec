package hub

import "hash/maphash"

// filter tells of most names that they are not watched, at a fraction of the cost of a lookup in a
// large map. The zero value has room for no name.
type filter struct {
	seed   maphash.Seed
	counts []uint8 // of the names by their hash; the length is a power of two
}

const (
	countsEach  = 4        // counts for each name, at least
	countsFirst = 64       // counts at the beginning
	stuck       = 1<<8 - 1 // a count that has reached this stays, for it may have missed names
)

// newFilter returns an empty filter with room for twice the number of names.
func newFilter(names int) filter {
	size := countsFirst
	for size < 2*countsEach*names {
		size *= 2
	}
	return filter{seed: maphash.MakeSeed(), counts: make([]uint8, size)}
}

// fits reports whether there is room for that number of names.
func (f *filter) fits(names int) bool { return countsEach*names <= len(f.counts) }

// count returns the count of the name, which it shares with few others.
func (f *filter) count(name string) *uint8 {
	return &f.counts[maphash.String(f.seed, name)&uint64(len(f.counts)-1)]
}

func (f *filter) add(name string) {
	if count := f.count(name); *count < stuck {
		*count++
	}
}

// remove removes a name, which must be in the filter.
func (f *filter) remove(name string) {
	if count := f.count(name); *count < stuck {
		*count--
	}
}

// may reports whether the name may be in the filter. If it reports false, the name is not.
func (f *filter) may(name string) bool { return *f.count(name) > 0 }
