package hub

import "hash/maphash"

// filter says of most names that they are not watched, at a fraction of what it costs to look into
// a map of very many. The zero value has room for no name.
type filter struct {
	seed   maphash.Seed
	counts []uint8 // of the names by their hash; their number is a power of two
}

const (
	countsEach  = 4        // counts for each name, at least
	countsFirst = 64       // counts at the beginning
	stuck       = 1<<8 - 1 // a count that came so far stays there, for it may have missed some
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

// remove takes out a name that is in.
func (f *filter) remove(name string) {
	if count := f.count(name); *count < stuck {
		*count--
	}
}

// may reports whether the name may be in. It is not if the answer is false.
func (f *filter) may(name string) bool { return *f.count(name) > 0 }
