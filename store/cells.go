package store

import (
	"hash/maphash"
	"sync/atomic"
)

// shardCount splits the hash, so that one growth copies a small part of it.
const shardCount = 64

// cell is the place of one key: where its versions hang.
type cell[T any] struct {
	key  string
	head atomic.Pointer[version[T]] // the newest version, published or not

	behind bool // the tree does not have head yet; the cell is in the table's behind list
	listed bool // the cell is in the table's open list
}

// version is one state of a row. All but prev and checksum is immutable.
type version[T any] struct {
	row      T
	index    uint64
	dead     bool                       // the row is deleted
	checksum uint32                     // of the row in the file; only the committer's
	prev     atomic.Pointer[version[T]] // the state before, while readers may need it
}

// live returns the row, or nil if v is none or dead.
func (v *version[T]) live() *T {
	if v == nil || v.dead {
		return nil
	}
	return &v.row
}

// cells is a hash of keys with open addressing. Readers take no lock: a slot, once it holds a
// cell, changes only to the mark of a removed one or to another key's cell, and a grown table is
// complete before it is put in place. One writer at a time.
type cells[T any] struct {
	seed   maphash.Seed
	gone   cell[T] // stands in a slot whose cell was removed
	shards [shardCount]shard[T]
}

type shard[T any] struct {
	slots atomic.Pointer[slots[T]]
	used  int // slots that are not nil
	live  int // slots that hold a cell
}

// slots has a power of two as its length.
type slots[T any] []atomic.Pointer[cell[T]]

func (c *cells[T]) place(key string) (*shard[T], uint64) {
	hash := maphash.String(c.seed, key)
	return &c.shards[hash%shardCount], hash / shardCount
}

// find returns the key's cell, or nil. Anybody may call it.
func (c *cells[T]) find(key string) *cell[T] {
	shard, at := c.place(key)
	table := shard.slots.Load()
	if table == nil {
		return nil
	}
	mask := uint64(len(*table) - 1)
	for ; ; at++ {
		found := (*table)[at&mask].Load()
		if found == nil || (found != &c.gone && found.key == key) {
			return found
		}
	}
}

// insert adds a cell whose key is not there.
func (c *cells[T]) insert(added *cell[T]) {
	shard, at := c.place(added.key)
	table := shard.slots.Load()
	if table == nil || (shard.used+1)*4 > len(*table)*3 {
		table = c.grow(shard, shard.live)
	}
	mask := uint64(len(*table) - 1)
	for ; ; at++ {
		slot := &(*table)[at&mask]
		switch slot.Load() {
		case nil:
			shard.used++
		case &c.gone:
		default:
			continue
		}
		slot.Store(added)
		shard.live++
		return
	}
}

// fill adds cells to a hash that is empty. No key is there twice.
func (c *cells[T]) fill(added []*cell[T]) {
	if each := len(added) / shardCount; each > 0 {
		for i := range c.shards {
			c.grow(&c.shards[i], each)
		}
	}
	for _, cell := range added {
		c.insert(cell)
	}
}

// grow gives the shard room for half as many cells again as the count, and drops the marks of
// removed ones.
func (c *cells[T]) grow(shard *shard[T], count int) *slots[T] {
	size := 4
	for size*3 < (count+1)*4*3/2 {
		size *= 2
	}
	grown := make(slots[T], size)
	if old := shard.slots.Load(); old != nil {
		for i := range *old {
			moved := (*old)[i].Load()
			if moved == nil || moved == &c.gone {
				continue
			}
			_, at := c.place(moved.key)
			for grown[at&uint64(size-1)].Load() != nil {
				at++
			}
			grown[at&uint64(size-1)].Store(moved)
		}
	}
	shard.used = shard.live
	shard.slots.Store(&grown)
	return &grown
}

// remove takes the cell out; one that is not there is left alone.
func (c *cells[T]) remove(removed *cell[T]) {
	shard, at := c.place(removed.key)
	table := shard.slots.Load()
	if table == nil {
		return
	}
	mask := uint64(len(*table) - 1)
	for ; ; at++ {
		slot := &(*table)[at&mask]
		switch slot.Load() {
		case nil:
			return
		case removed:
			shard.live--
			// The end of a run needs no mark: nothing lies beyond it.
			if (*table)[(at+1)&mask].Load() == nil {
				slot.Store(nil)
				shard.used--
			} else {
				slot.Store(&c.gone)
			}
			return
		}
	}
}
