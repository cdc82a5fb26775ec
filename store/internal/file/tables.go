package file

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/lockd/lockd/store/internal/format"
	"go.etcd.io/bbolt"
)

// tables is what bbolt has of a file: the tables, and the header. One goroutine at a time may use
// it.
//
// bbolt panics where it finds damage, and a page that the disk cannot read is a fault of the memory
// to which it is mapped. So everything that makes bbolt look at pages runs under guard.
type tables struct {
	db     *bbolt.DB
	page   int // bytes of a page; bbolt's Info panics once the file cannot be mapped anew
	hooks  Hooks
	disk   disk
	locked bool  // a transaction is open, or a panic of bbolt's left its locks
	broken error // not nil: such a panic, after which bbolt's memory may be wrong
}

// header returns the header of bbolt's last commit.
func (t *tables) header() (last header, err error) {
	err = t.view(func(tx *bbolt.Tx) (err error) {
		var value []byte
		if bucket := tx.Bucket([]byte(format.HeaderBucket)); bucket != nil {
			value = bucket.Get([]byte(headerKey))
		}
		last, err = headerOf(value, uint64(tx.ID()))
		return err
	})
	return last, err
}

// lastCommit returns bbolt's number of the last commit.
func (t *tables) lastCommit() (number uint64, err error) {
	err = t.view(func(tx *bbolt.Tx) error {
		number = uint64(tx.ID())
		return nil
	})
	return number, err
}

// tableCommit is what a transaction of bbolt's writes.
type tableCommit struct {
	rows []format.Write // to the tables, in order
	made []*segment     // the segments that it makes anew
	last header         // what it leaves; its commit is bbolt's last one before
}

// commit writes c in one transaction of bbolt's, without the segments if they cannot be made. It
// returns c with the header that it wrote and the segments that it made. After an error it reports
// in unclear whether c may be in the file nevertheless: if bbolt's last commit has changed, or is
// not known.
func (t *tables) commit(c tableCommit) (done tableCommit, unclear bool, err error) {
	last := c.last
	err = t.attempt(func() (err error) {
		last, err = t.write(c)
		return err
	})
	if err != nil {
		newest, unknown := t.lastCommit()
		unclear = unknown != nil || newest != c.last.commit
		if !unclear && len(c.made) > 0 {
			c.made = nil
			return t.commit(c)
		}
	}
	c.last = last
	return c, unclear, err
}

func (t *tables) write(c tableCommit) (header, error) {
	last := c.last
	err := t.update(func(tx *bbolt.Tx) error {
		last.commit = uint64(tx.ID())
		if len(c.made) > 0 {
			last.log.made = last.commit
		}
		if last.log.made == 0 {
			last.log = logState{} // there is no log, nor is one made
		}
		if err := writeTables(tx, c.rows, bbolt.DefaultFillPercent); err != nil {
			return err
		}
		for _, s := range c.made {
			if err := s.create(tx); err != nil {
				return fmt.Errorf("make segment %d of the log: %w", s.number, err)
			}
		}
		return writeHeader(tx, last)
	})
	if err != nil {
		return last, err
	}
	return last, t.locate(c.made)
}

// update commits what fn changes in a transaction. It is called under attempt.
func (t *tables) update(fn func(tx *bbolt.Tx) error) error {
	t.locked = true
	tx, err := t.db.Begin(true)
	if err != nil {
		t.locked = false
		return err
	}
	defer t.end(tx)
	if err := fn(tx); err != nil {
		return err
	}
	if t.hooks.Changed != nil {
		t.hooks.Changed()
	}
	return t.disk.alone(func() error {
		if err := tx.Commit(); err != nil {
			return err
		}
		return t.hooks.synced()
	})
}

// locate finds the pages of segments that a commit has made.
func (t *tables) locate(made []*segment) error {
	if len(made) == 0 {
		return nil
	}
	return t.view(func(tx *bbolt.Tx) error {
		for _, s := range made {
			name := segmentName(s.number)
			bucket := tx.Bucket(name)
			if bucket == nil {
				return corrupt("its bucket %s is missing", name)
			}
			s.start = int64(bucket.Root()) * int64(t.page)
		}
		return nil
	})
}

// writeTables writes the rows to the tables. A page that is split keeps the part fill of its rows.
func writeTables(tx *bbolt.Tx, rows []format.Write, fill float64) error {
	var buckets [format.TableCount]*bbolt.Bucket
	for _, row := range rows {
		bucket := buckets[row.Table]
		if bucket == nil {
			if bucket = tx.Bucket([]byte(format.TableName(row.Table))); bucket == nil {
				return errNoTable(row.Table)
			}
			bucket.FillPercent = fill
			buckets[row.Table] = bucket
		}
		key := format.BytesOf(row.Key) // bbolt keeps a copy of its own
		var err error
		if row.Value == nil {
			err = bucket.Delete(key)
		} else {
			err = bucket.Put(key, row.Value)
		}
		if err != nil {
			return errRow(row, err)
		}
	}
	return nil
}

// view calls fn with a transaction that sees the last commit.
func (t *tables) view(fn func(tx *bbolt.Tx) error) error {
	var tx *bbolt.Tx
	err := t.attempt(func() (err error) {
		t.locked = true
		tx, err = t.db.Begin(false)
		t.locked = err == nil
		return err
	})
	if err != nil {
		return err
	}
	defer t.end(tx)
	return guard(func() error { return fn(tx) })
}

// end rolls back the transaction, unless it was committed. A failed commit has ended the
// transaction; a commit that panicked has not.
func (t *tables) end(tx *bbolt.Tx) {
	_ = tx.Rollback() // its only error is that the transaction has ended
	t.locked = false
}

// attempt calls fn, which begins or commits a transaction, unless bbolt panicked in doing so
// before.
func (t *tables) attempt(fn func() error) error {
	if t.broken != nil {
		return t.broken
	}
	err := guard(fn)
	if errors.Is(err, errPanic) {
		t.broken = err
	}
	return err
}

// close closes the file. Only the first call does anything.
func (t *tables) close() error {
	if t.locked {
		// bbolt's Close would wait for ever, and closing the handle alone would free nothing: the
		// mapped memory keeps the lock too.
		return fmt.Errorf("close: the file stays locked until the process ends: %w", t.broken)
	}
	return t.db.Close()
}

// errPanic is what guard makes of a panic.
var errPanic = corrupt("bbolt cannot read it")

// guard calls fn, and makes an error of a panic of bbolt's or of a fault of the mapped file.
func guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%w: %v", errPanic, reason)
		}
	}()
	return fn()
}

// disk lets one goroutine at a time write to the file and sync it: for a commit to the log, or for
// a commit of bbolt's. The system reports a failed write only once, to the next sync, whichever
// goroutine makes it. So with two at a time, one could take the other's error, and the other would
// count as durable what is not on disk. It is a channel, not a mutex, so that a test can tell which
// goroutine waits for it. It has room for one.
type disk chan struct{}

// alone calls write, which syncs all that it has written, when no other goroutine writes.
func (d disk) alone(write func() error) error {
	d <- struct{}{}
	defer func() { <-d }()
	return write()
}
