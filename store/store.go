package store

import (
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
	"github.com/lockd/lockd/store/internal/table"
)

// Options says how a file is opened.
type Options = file.Options

// Hooks are for tests that hold or break a commit, or feign a file system.
type Hooks = file.Hooks

// Snapshot is the published state at one index.
type Snapshot = table.Snapshot

// Batch is what one commit writes.
type Batch = table.Batch

// Draft is a row that is yet to be written.
type Draft[T any] = table.Draft[T]

// What [Store.Open] returns when it refuses a file. The file is left as it is, byte for byte.
var (
	// ErrInUse is returned when another database, of this process or another, has the file open,
	// and did not close it within Options.Timeout.
	ErrInUse = file.ErrInUse

	// ErrCorrupt is returned when the file is damaged: it is empty or cut off, its pages do not fit
	// together, or a row is not what was written. A commit that finds such damage returns it too.
	ErrCorrupt = format.ErrCorrupt

	// ErrFormat is returned when the file seems sound, but was not written by this package, or was
	// written by a newer version of it.
	ErrFormat = file.ErrFormat

	// ErrInvalid is returned when the path is on a file system on which the file's lock cannot be
	// trusted, and Options.AllowNetworkFS does not let it through; or when the file is too large to
	// be mapped by a program of 32 bits.
	ErrInvalid = file.ErrInvalid
)

// Store is rows in memory and, unless they are in memory only, their file.
type Store struct {
	table.State
	file medium // nil: in memory
}

// medium is where batches go. One goroutine at a time may use it.
type medium interface {
	Commit(rows []format.Write, index uint64, left format.Tally) error
	Secure() error
	Tidy() (step func() error)
	Untidy() bool
	Index() (uint64, error) // of the last commit
	Tally() format.Tally    // of the rows that it left
	Size() int64            // in bytes; any goroutine may ask at any time
	Close() error
}

var (
	_ medium = (*file.File)(nil)
	_ medium = (*rehearsal)(nil)
)

// New returns an empty store in memory.
func New() *Store {
	s := new(Store)
	s.Init()
	return s
}

// Open reads the file into s, which must be new and unwritten. Functions that were given to OnMove
// before see every row. It creates the file if there is none, unless Options.Existing is set. It
// waits for the file's lock up to Options.Timeout, and then returns [ErrInUse]. It returns
// [ErrCorrupt], [ErrFormat] or [ErrInvalid] for a file that it refuses, and leaves that file as it
// is. Open does not write to an existing file, and what the file has may not be on disk yet: see
// Secure. After an error s is not usable.
func (s *Store) Open(path string, opts Options) error {
	rows := s.Load()
	f, err := file.Open(path, opts, rows)
	if err != nil {
		rows.Discard()
		return err
	}
	rows.Publish()
	s.file = f
	return nil
}

// Close closes the file, if there is one. What is published stays readable.
func (s *Store) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// Durable reports whether a batch has to be written before it is published: whether there is a
// file, or Rehearse was called.
func (s *Store) Durable() bool { return s.file != nil }

// Size asks the file system for the size of the file in bytes, its log included. It returns 0 if
// there is no file, or if the file is closed. Any goroutine may call it once the store is open.
func (s *Store) Size() int64 {
	if s.file == nil {
		return 0
	}
	return s.file.Size()
}

// Raise is [table.State.Raise]. Without a file, readers see the index at once. A file gets it with
// the next transaction that writes.
func (s *Store) Raise(index uint64) {
	s.State.Raise(index)
	if !s.Durable() {
		s.PublishMemory()
	}
}

// Write commits the batch to the file, whole or not at all, with its index. It is called without
// the store's lock, by one goroutine at a time, once for each batch. After an error
// [Store.FileIndex] tells whether the file has the batch.
func (s *Store) Write(b *Batch) error {
	rows, left := b.Encode(s.file.Tally())
	return s.file.Commit(rows, b.Index(), left)
}

// Tidy does the work in the file that the last batch has left, except a step of a checkpoint: it
// returns that step, or nil if none is due. A caller of Tidy spares the next Write that work. Tidy
// may be called wherever Write may be.
//
// The caller calls the step once, on any goroutine. Other batches may be written meanwhile; they
// wait for the step when they need the tables, and so do FileIndex and Close. If the step fails,
// all batches are as durable as before. The step is tried again, at the latest when the log is
// full; Write returns the error of that attempt. If it is not known what a failed step has left in
// the file, every later Write returns the error.
func (s *Store) Tidy() (step func() error) { return s.file.Tidy() }

// Untidy reports whether Tidy has so much to do that it deserves its own goroutine. It may be
// called wherever Tidy may be.
func (s *Store) Untidy() bool { return s.file.Untidy() }

// Secure puts on disk what was read from the file, unless Options.NoSync is set: the process that
// had the file open before may have been killed before its sync. Call Secure before any caller is
// told what was read. Write does the same. Without a file Secure does nothing.
func (s *Store) Secure() error {
	if s.file == nil {
		return nil
	}
	return s.file.Secure()
}

// FileIndex reads the index of the last transaction that the file has.
func (s *Store) FileIndex() (uint64, error) { return s.file.Index() }
