package table

import (
	"hash/maphash"
	"math/bits"
	"sync/atomic"
)

// shardCount splits the hash, so that one growth copies a small part of it.
const shardCount = 64

// cell is what a table has of one key. All fields except the key are the writer's.
type cell[T any] struct {
	key  string
	head *atomic.Pointer[version[T]] // the head of its versions, in a group; nil if it is in none

	behind  uint32 // its place in the table's behind list, from 1 on; 0: the order has the head
	ordered bool   // the order has the key
	listed  bool   // the cell is in the table's open list
}

// newest returns the newest version, published or not, or nil.
func (c *cell[T]) newest() *version[T] {
	if c.head == nil {
		return nil
	}
	return c.head.Load()
}

// version is one state of a row. All fields except prev and checksum are immutable.
type version[T any] struct {
	row      T
	index    uint64
	dead     bool                       // the row is deleted
	checksum uint32                     // of the row in the file; only the committer's
	prev     atomic.Pointer[version[T]] // the version before, until no reader can need it
}

// at returns the newest version, from v on, that is not above the index, or nil if there is none. v
// may be nil. Versions that no reader can need any more are gone.
func (v *version[T]) at(index uint64) *version[T] {
	for v != nil && v.index > index {
		v = v.prev.Load()
	}
	return v
}

// live returns the row, or nil if v is nil or dead.
func (v *version[T]) live() *T {
	if v == nil || v.dead {
		return nil
	}
	return &v.row
}

// cells is a hash table of keys with open addressing, for one writer at a time. Readers take no
// lock. A place keeps its cell until the cell is removed; then it is empty, or gets another key's
// cell. A grown table is complete before it replaces the old one. The old table keeps its heads as
// they were: a reader that still looks there loaded the published index before, and needs nothing
// newer.
type cells[T any] struct {
	seed   maphash.Seed
	keyOf  func(row *T) string                  // nil: rows are not asked for their keys
	shards atomic.Pointer[[shardCount]shard[T]] // nil: there has never been a cell
}

type shard[T any] struct {
	groups atomic.Pointer[groups[T]]
	used   int // places that are not free
	live   int // places that have a cell
}

type groups[T any] []group[T]

// group is two cache lines. As a rule a search for a key reads only the first line, and no versions
// of other keys, each of which would be one more line. If the key is in the row, the cell is not
// needed either: fetching it would take a quarter of a Get.
type group[T any] struct {
	tags  atomic.Uint64 // a byte for each place, from the lowest on
	heads [groupSize]atomic.Pointer[version[T]]
	cells [groupSize]atomic.Pointer[cell[T]]
	_     [8]byte // to the end of the second line
}

const groupSize = 7

// A tag says what is in a place. A cell's tag is a part of its hash, with the highest bit set.
const (
	tagFree = 0 // nothing, and there never was
	tagGone = 1 // nothing, since a cell was removed
	tagCell = 0x80
)

// places is a set of a group's places: the highest bit in the byte of each.
type places uint64

func (p places) first() int { return bits.TrailingZeros64(uint64(p)) / 8 }

// having returns the places with the tag. It may add others after the first of them.
func having(tags uint64, tag uint8) places {
	const each = 0x01_01_01_01_01_01_01
	differ := tags ^ each*uint64(tag)
	return places((differ - each) &^ differ & (each << 7))
}

func (g *group[T]) setTag(place int, tag uint8) {
	others := g.tags.Load() &^ (0xff << (8 * place))
	g.tags.Store(others | uint64(tag)<<(8*place))
}

// start is the group in which the search for a hash begins.
func (g groups[T]) start(hash uint64) int {
	return int(uint64(uint32(hash>>8)) * uint64(len(g)) >> 32)
}

// after is the group in which a search goes on, when the group at has no free place.
func (g groups[T]) after(at int) int { return (at + 1) % len(g) }

func (c *cells[T]) hash(key string) uint64 { return maphash.String(c.seed, key) }

// tagOf is the tag of a cell whose key has the hash.
func tagOf(hash uint64) uint8 { return uint8(hash>>56) | tagCell }

// find returns the cell of the key, which has the hash, and its newest version; nil and nil if
// there is none. Only the writer calls it.
func (c *cells[T]) find(key string, hash uint64) (*cell[T], *version[T]) {
	group, place, newest := c.search(key, hash)
	if group == nil {
		return nil, nil
	}
	return group.cells[place].Load(), newest
}

// newest returns the newest version of the key, or nil, and whether the key has a cell. Any
// goroutine may call it.
func (c *cells[T]) newest(key string) (newest *version[T], there bool) {
	if c.shards.Load() == nil {
		return nil, false // without a hash
	}
	group, _, newest := c.search(key, c.hash(key))
	return newest, group != nil
}

// search returns the group that has the cell of the key, which has the hash, the cell's place
// there, and the key's newest version; the group is nil if the key has no cell.
func (c *cells[T]) search(key string, hash uint64) (*group[T], int, *version[T]) {
	shards := c.shards.Load()
	if shards == nil {
		return nil, 0, nil
	}
	table := shards[hash%shardCount].groups.Load()
	if table == nil {
		return nil, 0, nil
	}
	tag := tagOf(hash)
	for at := table.start(hash); ; at = table.after(at) {
		group := &(*table)[at]
		tags := group.tags.Load()
		for found := having(tags, tag); found != 0; found &= found - 1 {
			// The place may have lost its cell since the tags were read, or got another.
			place := found.first()
			if newest, there := group.look(place, key, c.keyOf); there {
				return group, place, newest
			}
		}
		if having(tags, tagFree) != 0 {
			return nil, 0, nil
		}
	}
}

// look reports whether the place is the key's, and returns the newest version there.
func (g *group[T]) look(
	place int, key string, keyOf func(row *T) string,
) (newest *version[T], there bool) {
	if keyOf != nil {
		newest = g.heads[place].Load()
		if row := newest.live(); row != nil && keyOf(row) == key {
			return newest, true
		}
	}
	c := g.cells[place].Load()
	if c == nil || c.key != key {
		return nil, false
	}
	newest = g.heads[place].Load()
	return newest, g.cells[place].Load() == c // a cell that has left never comes back
}

// insert adds a cell with its newest version. The key has the hash, and no cell yet.
func (c *cells[T]) insert(added *cell[T], newest *version[T], hash uint64) {
	shards := c.shards.Load()
	if shards == nil {
		shards = new([shardCount]shard[T])
		c.shards.Store(shards)
	}
	shard := &shards[hash%shardCount]
	table := shard.groups.Load()
	if table == nil || (shard.used+1)*4 > len(*table)*groupSize*3 {
		table = c.grow(shard)
	}
	if table.insert(added, newest, hash) == tagFree {
		shard.used++
	}
	shard.live++
}

// insert puts the cell into the first empty place, and returns the tag that the place had.
func (g groups[T]) insert(added *cell[T], newest *version[T], hash uint64) (before uint8) {
	for at := g.start(hash); ; at = g.after(at) {
		group := &g[at]
		tags := group.tags.Load()
		if empty := having(tags, tagFree) | having(tags, tagGone); empty != 0 {
			place := empty.first()
			added.head = &group.heads[place]
			if newest != nil { // an empty place has nil already
				added.head.Store(newest) // before the cell: a reader of the cell finds its version
			}
			group.cells[place].Store(added)
			group.setTag(place, tagOf(hash)) // from now on it is found
			return uint8(tags >> (8 * place))
		}
	}
}

// grow gives the shard room for half as many cells again, and drops the marks of removed cells.
func (c *cells[T]) grow(shard *shard[T]) *groups[T] {
	grown := make(groups[T], 1+(shard.live+shard.live/2)*4/3/groupSize)
	if old := shard.groups.Load(); old != nil {
		for i := range *old {
			for place := range groupSize {
				if moved := (*old)[i].cells[place].Load(); moved != nil {
					grown.insert(moved, moved.newest(), c.hash(moved.key))
				}
			}
		}
	}
	shard.used = shard.live
	shard.groups.Store(&grown)
	return &grown
}

// remove removes the cell, whose key has the hash, and whose newest version is dead or nil. It does
// nothing if the cell is not there.
func (c *cells[T]) remove(removed *cell[T], hash uint64) {
	if removed.head == nil {
		return
	}
	shard, tag := &c.shards.Load()[hash%shardCount], tagOf(hash)
	table := shard.groups.Load()
	for at := table.start(hash); ; at = table.after(at) {
		group := &(*table)[at]
		tags := group.tags.Load()
		free := having(tags, tagFree) != 0
		for found := having(tags, tag); found != 0; found &= found - 1 {
			place := found.first()
			if group.cells[place].Load() != removed {
				continue
			}
			left := uint8(tagGone)
			if free { // no search has ever gone on from here
				left = tagFree
				shard.used--
			}
			group.setTag(place, left)
			group.cells[place].Store(nil) // before the head: see look
			group.heads[place].Store(nil)
			removed.head = nil
			shard.live--
			return
		}
		if free {
			return
		}
	}
}
