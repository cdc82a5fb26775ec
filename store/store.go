package store

import (
	"fmt"
	"github.com/lockd/lockd/internal/schema"
	"io/fs"
	"math/bits"
	"sync/atomic"
	"time"
)

// FirstIndex is the index of an empty store. The first write gets the next one.
const FirstIndex = 1

// Options says how a file is opened.
type Options struct {
	Timeout time.Duration // how long to wait for the file's lock
	Mode    fs.FileMode   // of a file that is created
	Sync    SyncPolicy
	Hooks   Hooks

	AllowNetworkFS bool // also where the file's lock cannot be trusted
}

func (o Options) file() fileOptions {
	return fileOptions{
		timeout: o.Timeout, mode: o.Mode, sync: o.Sync, hooks: o.Hooks,
		allowNetworkFS: o.AllowNetworkFS,
	}
}

// Store is the tables and, unless it is in memory only, their file.
//
// Cached, Published and the Get of every table are free for all; all else is the writer's, under
// one lock of the caller's.
type Store struct {
	Keys        Table[schema.Key]
	Sessions    Table[schema.Session]
	Nodes       Table[schema.Node]
	Services    Table[schema.Service]
	Checks      Table[schema.Check]
	Attachments Table[schema.Attachment]
	Delays      Table[schema.Delay]
	Marks       Table[schema.Mark]
	graves      graves

	file      medium        // nil: in memory
	published atomic.Uint64 // what readers see
	cached    atomic.Pointer[Snapshot]
	index     uint64 // of the newest sealed transaction
	taken     uint64 // versions above it are in the open batch
	touched   uint16 // tables that the running transaction wrote, by number
	pending   uint16 // tables that the open batch has changes of
	buffer    []byte // the last batch's encoded rows, to be used again
}

// medium is where batches go. One goroutine at a time may use it.
type medium interface {
	commit(rows []rowWrite, last header) error
	secure() error
	tidy() (step func() error)
	untidy() bool
	index() (uint64, error) // of the last commit
	tally() tally           // of the rows that it left
	close() error
}

var (
	_ medium = (*file)(nil)
	_ medium = (*rehearsal)(nil)
)

// table is what the store does to all its tables alike.
type table interface {
	rollBack()
	seal()
	publish()
	take() part
	drop()
	add(content *chunk) page
	loaded() error
	tell()
	clear()
	check() error
	rows() int
}

// New returns an empty store in memory.
func New() *Store {
	s := &Store{index: FirstIndex, taken: FirstIndex}
	s.published.Store(FirstIndex)
	s.Keys.init(s, tableKeys, keyCodec)
	s.Keys.pick = lockedKey
	s.Keys.cells.keyOf = func(row *schema.Key) string { return row.Key }
	s.Sessions.init(s, tableSessions, sessionCodec)
	s.Sessions.layout = &sessionLayout
	s.Nodes.init(s, tableNodes, nodeCodec)
	s.Services.init(s, tableServices, serviceCodec)
	s.Checks.init(s, tableChecks, checkCodec)
	s.Attachments.init(s, tableAttachments, attachmentCodec)
	s.Delays.init(s, tableDelays, delayCodec)
	s.Delays.layout = &delayLayout
	s.graves.init(s)
	s.Marks.init(s, tableMarks, markCodec)
	return s
}

func (s *Store) table(number int) table {
	switch byte(number) {
	case tableKeys:
		return &s.Keys
	case tableSessions:
		return &s.Sessions
	case tableNodes:
		return &s.Nodes
	case tableServices:
		return &s.Services
	case tableChecks:
		return &s.Checks
	case tableAttachments:
		return &s.Attachments
	case tableDelays:
		return &s.Delays
	case tableGraves:
		return &s.graves.table
	case tableMarks:
		return &s.Marks
	}
	panic(fmt.Sprintf("store: bug: no table has the number %d", number))
}

// Open reads the file into s, which New made and nothing was written to; OnMove hooks that are
// set see every row. It creates the file if there is none. It waits for the file's lock up to
// Options.Timeout, and returns [ErrInUse] then; [ErrCorrupt] and [ErrFormat] tell of a file that
// it refuses and leaves as it is. An existing file is not written to, and what it has may not be on
// disk yet: see Secure. After an error s is not usable.
func (s *Store) Open(path string, opts Options) error {
	rows := &loading{store: s}
	f, err := openFile(path, opts.file(), rows)
	if err != nil {
		rows.discard()
		return err
	}
	rows.publish()
	s.file = f
	return nil
}

// Locked returns the keys that were locked when the file was opened, in order.
func (s *Store) Locked() []*schema.Key { return s.Keys.picked }

// Close closes the file, if there is one. What is published stays readable.
func (s *Store) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.close()
}

// Durable reports whether there is a file: whether a batch has to be written before it is
// published.
func (s *Store) Durable() bool { return s.file != nil }

// Published is the index that readers see. Anybody may call it.
func (s *Store) Published() uint64 { return s.published.Load() }

// Index is the index of the newest transaction that was sealed, published or not.
func (s *Store) Index() uint64 { return s.index }

// Next is the index that the running transaction's writes carry.
func (s *Store) Next() uint64 { return s.index + 1 }

// Undo takes back all that the running transaction wrote.
func (s *Store) Undo() {
	for set := s.touched; set != 0; set &= set - 1 {
		s.table(bits.TrailingZeros16(set)).rollBack()
	}
	s.touched = 0
}

// Seal ends the running transaction and keeps what it wrote in the open batch. A transaction
// that wrote nothing uses no index.
func (s *Store) Seal() {
	if s.touched == 0 {
		return
	}
	s.index++
	for set := s.touched; set != 0; set &= set - 1 {
		s.table(bits.TrailingZeros16(set)).seal()
	}
	s.pending |= s.touched
	s.touched = 0
}

// Wrote reports whether the running transaction has written.
func (s *Store) Wrote() bool { return s.touched != 0 }

// Raise moves the index on, so that the next transaction's is above it. No transaction may be
// running. A file has that index when the next transaction that writes is in it.
func (s *Store) Raise(index uint64) {
	s.index = max(s.index, index)
	if !s.Durable() {
		s.PublishMemory()
	}
}

// Pending reports whether the open batch holds anything.
func (s *Store) Pending() bool { return s.pending != 0 }

// PublishMemory shows what was sealed to readers, at once. It is for a store without a file.
func (s *Store) PublishMemory() {
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
		s.table(bits.TrailingZeros16(set)).publish()
	}
	s.pending = 0
}

// Take closes the open batch, which becomes the one to be written; the next fills from now on.
// The batch before must have been published or dropped.
func (s *Store) Take() *Batch {
	b := &Batch{store: s, index: s.index, buffer: s.buffer}
	for set := s.pending; set != 0; set &= set - 1 {
		b.parts = append(b.parts, s.table(bits.TrailingZeros16(set)).take())
	}
	s.taken = s.index
	s.pending = 0
	return b
}

// Publish shows a batch that was written to readers.
func (s *Store) Publish(b *Batch) {
	s.cached.Store(nil) // see PublishMemory
	s.published.Store(b.index)
	for _, p := range b.parts {
		p.publish()
	}
}

// Drop takes back a batch that could not be written, and the open one. The published state is
// as it was; the indexes are not used again.
func (s *Store) Drop(b *Batch) {
	for _, p := range b.parts {
		p.drop()
	}
	for set := s.pending; set != 0; set &= set - 1 {
		s.table(bits.TrailingZeros16(set)).drop()
	}
	s.pending = 0
	s.taken = s.index
}

// Tidy does what the last batch has left to be done in the file, but for a step of a checkpoint: it
// returns that, nil if none is due. Tidy may be called wherever a batch may be written, so that the
// batch need not wait for it: else Write does it.
//
// The step has to be called, once, by any goroutine, and may last while other batches are written:
// they wait for it when they need the tables, and so do FileIndex and Close. After its error all
// batches are as durable as before. It is tried again, at the latest when the log is full, and what
// goes wrong then is returned by Write; if it is not known what the file has, by each from now on.
func (s *Store) Tidy() (step func() error) { return s.file.tidy() }

// Untidy reports whether Tidy has so much to do that it is worth a goroutine of its own. It may be
// called where Tidy may be.
func (s *Store) Untidy() bool { return s.file.untidy() }

// Secure has on disk what was read from the file, as far as the file's SyncPolicy says: whoever had
// it open before may have been killed before it was. It is to be called before anybody is told of
// what was read; a batch that is written has it done too. Without a file it does nothing.
func (s *Store) Secure() error {
	if s.file == nil {
		return nil
	}
	return s.file.secure()
}

// FileIndex reads the index of the last transaction that the file has.
func (s *Store) FileIndex() (uint64, error) { return s.file.index() }

// Cached returns the published snapshot, or nil if it has to be built. Anybody may call it.
func (s *Store) Cached() *Snapshot { return s.cached.Load() }

// Snapshot returns the published state. No transaction may be running. The first after a
// publication costs what has changed since the one before, whatever is not published yet included;
// a batch costs nothing for it.
func (s *Store) Snapshot() *Snapshot {
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
		}
		s.cached.Store(snapshot)
	}
	return snapshot
}
