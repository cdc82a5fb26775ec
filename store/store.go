package store

// Store is rows in memory and, unless they are in memory only, their file.
type Store struct {
	State
	file medium // nil: in memory
}

// medium is where batches go. One goroutine at a time may use it.
type medium interface {
	Commit(rows []rowWrite, index uint64, left tally) error
	Secure() error
	Tidy() (step func() error)
	Untidy() bool
	Index() (uint64, error) // of the last commit
	Tally() tally           // of the rows that it left
	Close() error
}

var (
	_ medium = (*file)(nil)
	_ medium = (*rehearsal)(nil)
)

// New returns an empty store in memory.
func New() *Store {
	s := new(Store)
	s.Init()
	return s
}

// Open reads the file into s, which New made and nothing was written to; OnMove hooks that are
// set see every row. It creates the file if there is none. It waits for the file's lock up to
// Options.Timeout, and returns [ErrInUse] then; [ErrCorrupt] and [ErrFormat] tell of a file that
// it refuses and leaves as it is. An existing file is not written to, and what it has may not be on
// disk yet: see Secure. After an error s is not usable.
func (s *Store) Open(path string, opts Options) error {
	rows := s.load()
	f, err := openFile(path, opts, rows)
	if err != nil {
		rows.discard()
		return err
	}
	rows.publish()
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

// Durable reports whether there is a file: whether a batch has to be written before it is
// published.
func (s *Store) Durable() bool { return s.file != nil }

// Raise is [State.Raise], for all readers to see at once if there is no file. A file has the index
// when the next transaction that writes is in it.
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
	rows, left := b.encode(s.file.Tally())
	return s.file.Commit(rows, b.Index(), left)
}

// Tidy does what the last batch has left to be done in the file, but for a step of a checkpoint: it
// returns that, nil if none is due. Tidy may be called wherever a batch may be written, so that the
// batch need not wait for it: else Write does it.
//
// The step has to be called, once, by any goroutine, and may last while other batches are written:
// they wait for it when they need the tables, and so do FileIndex and Close. After its error all
// batches are as durable as before. It is tried again, at the latest when the log is full, and what
// goes wrong then is returned by Write; if it is not known what the file has, by each from now on.
func (s *Store) Tidy() (step func() error) { return s.file.Tidy() }

// Untidy reports whether Tidy has so much to do that it is worth a goroutine of its own. It may be
// called where Tidy may be.
func (s *Store) Untidy() bool { return s.file.Untidy() }

// Secure has on disk what was read from the file, unless Options.NoSync says otherwise: whoever had
// it open before may have been killed before it was. It is to be called before anybody is told of
// what was read; a batch that is written has it done too. Without a file it does nothing.
func (s *Store) Secure() error {
	if s.file == nil {
		return nil
	}
	return s.file.Secure()
}

// FileIndex reads the index of the last transaction that the file has.
func (s *Store) FileIndex() (uint64, error) { return s.file.Index() }
