package table

import (
	"math/bits"
	"sync/atomic"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store/internal/format"
)

// State has all rows: the tables, with one index. Any goroutine may call Cached, Published and the
// Get of every table. For all other methods the caller holds its one lock.
type State struct {
	Keys        Table[schema.Key]
	Sessions    Table[schema.Session]
	Nodes       Table[schema.Node]
	Services    Table[schema.Service]
	Checks      Table[schema.Check]
	Attachments Table[schema.Attachment]
	Delays      Table[schema.Delay]
	Marks       Table[schema.Mark]
	Shares      Table[schema.Share]
	graves      graves
	tables      [format.TableCount]table // all of them, by number

	published atomic.Uint64 // what readers see
	cached    atomic.Pointer[Snapshot]
	index     uint64 // of the newest sealed transaction
	taken     uint64 // versions above it are in the open batch
	touched   uint16 // tables that the running transaction wrote, by number
	pending   uint16 // tables that the open batch has changes of
	buffer    []byte // the last batch's encoded rows, to be used again; only Encode's
}

// table is what the state does to all its tables alike.
type table interface {
	rollBack()
	seal()
	publish()
	take() (p part, rows int)
	add(content *format.Chunk) page
	loaded() error
	tell()
	clear()
	check() error
	Len() int
}

// Init makes the zero state an empty one.
func (s *State) Init() {
	s.index, s.taken = schema.FirstIndex, schema.FirstIndex
	s.published.Store(schema.FirstIndex)
	s.Keys.init(s, &format.KeyRows)
	s.Keys.pick = format.LockedKey
	s.Keys.cells.keyOf = func(row *schema.Key) string { return row.Key }
	s.Sessions.init(s, &format.SessionRows)
	s.Nodes.init(s, &format.NodeRows)
	s.Services.init(s, &format.ServiceRows)
	s.Checks.init(s, &format.CheckRows)
	s.Attachments.init(s, &format.AttachmentRows)
	s.Delays.init(s, &format.DelayRows)
	s.graves.init(s)
	s.Marks.init(s, &format.MarkRows)
	s.Shares.init(s, &format.ShareRows)
}

// Locked returns the keys that were locked when the file was opened, in order.
func (s *State) Locked() []*schema.Key { return s.Keys.picked }

// Published is the index that readers see. Anybody may call it.
func (s *State) Published() uint64 { return s.published.Load() }

// Index is the index of the newest transaction that was sealed, published or not.
func (s *State) Index() uint64 { return s.index }

// Next is the index that the running transaction's writes carry.
func (s *State) Next() uint64 { return s.index + 1 }

// Undo takes back all that the running transaction wrote.
func (s *State) Undo() {
	for set := s.touched; set != 0; set &= set - 1 {
		s.tables[bits.TrailingZeros16(set)].rollBack()
	}
	s.touched = 0
}

// Seal ends the running transaction and keeps what it wrote in the open batch. A transaction
// that wrote nothing uses no index.
func (s *State) Seal() {
	if s.touched == 0 {
		return
	}
	s.index++
	for set := s.touched; set != 0; set &= set - 1 {
		s.tables[bits.TrailingZeros16(set)].seal()
	}
	s.pending |= s.touched
	s.touched = 0
}

// Wrote reports whether the running transaction has written.
func (s *State) Wrote() bool { return s.touched != 0 }

// Raise raises the index, so that the next transaction has a higher one. No transaction may be
// running. Readers see the index with the next publication.
func (s *State) Raise(index uint64) { s.index = max(s.index, index) }

// Pending reports whether the open batch holds anything.
func (s *State) Pending() bool { return s.pending != 0 }

// PublishMemory shows what was sealed to readers, at once. It is for rows that are in memory only.
func (s *State) PublishMemory() {
	if s.index == s.Published() {
		return
	}
	// The snapshot goes first: a reader who sees the new index must not get an old snapshot.
	if s.cached.Load() != nil {
		s.cached.Store(nil)
	}
	s.published.Store(s.index)
	s.taken = s.index
	for set := s.pending; set != 0; set &= set - 1 {
		s.tables[bits.TrailingZeros16(set)].publish()
	}
	s.pending = 0
}

// Publish shows a batch that was written to readers.
func (s *State) Publish(b *Batch) {
	s.cached.Store(nil) // see PublishMemory
	s.published.Store(b.index)
	for _, p := range b.parts {
		p.publish()
	}
}

// Drop takes back a batch that could not be written, and the open batch. The published state stays
// as it is, and the indexes are not used again.
func (s *State) Drop(b *Batch) {
	b.drop() // before Take puts the cells of the open batch in the place of b's cells
	s.Take().drop()
}

// Cached returns the published snapshot, or nil if it has to be built. Anybody may call it.
func (s *State) Cached() *Snapshot { return s.cached.Load() }

// Snapshot returns the published state. No transaction may be running. The first call after a
// publication takes time in proportion to what has changed since the last snapshot, including what
// is not published yet. A batch takes no time for snapshots.
func (s *State) Snapshot() *Snapshot {
	snapshot := s.cached.Load()
	if snapshot == nil {
		snapshot = &Snapshot{
			index:       s.Published(),
			Keys:        s.Keys.snapshot(),
			Sessions:    s.Sessions.snapshot(),
			Nodes:       s.Nodes.snapshot(),
			Services:    s.Services.snapshot(),
			Checks:      s.Checks.snapshot(),
			Attachments: s.Attachments.snapshot(),
			Delays:      s.Delays.snapshot(),
			Graves:      s.graves.table.snapshot(),
			Marks:       s.Marks.snapshot(),
			Shares:      s.Shares.snapshot(),
		}
		s.cached.Store(snapshot)
	}
	return snapshot
}
