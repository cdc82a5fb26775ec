package store

import (
	"fmt"

	"go.etcd.io/bbolt"
)

// tidy does what the last commit to the log has left to be done, unless it is done, or the file is
// not ready to be written to. What goes wrong is an error of the next commit: the last one is
// durable.
func (f *file) tidy() {
	if f.tidied || !f.synced || f.log.cut != nil {
		return
	}
	f.tidied = true
	f.log.tidy()
	f.failed = f.attempt(f.advance)
}

// untidy reports whether tidy has much to do.
func (f *file) untidy() bool {
	_, due := f.log.due()
	return !f.tidied && (due || len(f.log.latest) >= manyRows)
}

// advance takes the step of the checkpoint that is due. One for which there is no room can wait:
// until the log is full too.
func (f *file) advance() error {
	target, due := f.log.due()
	if !due {
		return nil
	}
	before := f.last.commit
	if err := f.checkpoint(f.log.step(target)); err != nil {
		if f.committedSince(before) {
			return err
		}
		f.log.stepped = f.log.filling.fill()
	}
	return nil
}

// checkpoint takes rows from the log to the tables.
func (f *file) checkpoint(s *step) error {
	if s == nil {
		return nil
	}
	var made []*segment
	if idle, size := f.log.settled, wanted(f.last.tally.rows); s.done && idle.small(size) {
		made = append(made, f.newSegment(idle.number, size))
	}
	last := f.last
	last.log = f.log.after(s)
	made, err := f.grow(s.rows, made, last)
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	f.log.advance(s, made)
	return nil
}

// grow calls transact, and does without the segments if they cannot be made. It returns those that
// were.
func (f *file) grow(rows []rowWrite, made []*segment, last header) ([]*segment, error) {
	before := f.last.commit
	err := f.transact(rows, made, last)
	if err == nil || len(made) == 0 || f.committedSince(before) {
		return made, err
	}
	return nil, f.transact(rows, nil, last)
}

// committedSince reports whether bbolt's last commit is another one than that, or is not known.
func (f *file) committedSince(before uint64) bool {
	last, err := f.lastCommit()
	return err != nil || last != before
}

// writeTables commits the rows to the tables, with all that the log has.
func (f *file) writeTables(rows []rowWrite, last header) error {
	l := &f.log
	next := max(1, l.next)
	last.log = logState{first: next, next: next}
	made, err := f.grow(l.list(rows), f.newSegments(last.tally.rows), last)
	if err != nil {
		return err
	}
	if l.direct++; len(made) == 0 && l.direct > lateCommits {
		l.direct = 0 // for want of room: later
	}
	l.clear(made)
	return nil
}

// newSegments returns the segments that a file of so many rows gets with a commit to the tables, if
// any: small ones when it has seen some commits, and large ones with a commit that is too large for
// those.
func (f *file) newSegments(rows uint64) []*segment {
	size := wanted(rows)
	switch l := &f.log; {
	case !l.none() && !f.young() && l.small(size):
	case l.none() && l.direct >= lateCommits:
		size = firstSegment
	default:
		return nil
	}
	return []*segment{f.newSegment(0, size), f.newSegment(1, size)}
}

func (f *file) newSegment(number byte, size int) *segment {
	page := f.db.Info().PageSize
	s := &segment{number: number, stride: segmentStride(size, page)}
	s.reset()
	return s
}

// transact writes rows to the tables, and the header, and makes segments, in one transaction of
// bbolt's.
func (f *file) transact(rows []rowWrite, made []*segment, last header) error {
	f.locked = true
	tx, err := f.db.Begin(true)
	if err != nil {
		f.locked = false
		return err
	}
	defer f.end(tx)
	last.version, last.commit, last.log.made = logVersion, uint64(tx.ID()), f.log.made
	switch {
	case len(made) > 0:
		last.log.made = last.commit
	case f.log.none():
		last.version = plainVersion
	}
	if err := writeTables(tx, rows, bbolt.DefaultFillPercent); err != nil {
		return err
	}
	for _, s := range made {
		if err := s.create(tx); err != nil {
			return fmt.Errorf("make segment %d of the log: %w", s.number, err)
		}
	}
	if err := writeHeader(tx, last); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	if err := f.hooks.synced(); err != nil {
		return err
	}
	if err := f.locate(made); err != nil {
		return err
	}
	f.last = last
	f.log.made = last.log.made
	return nil
}

// locate finds segments that a commit has made.
func (f *file) locate(made []*segment) error {
	if len(made) == 0 {
		return nil
	}
	return f.view(func(tx *bbolt.Tx) error {
		for _, s := range made {
			if err := s.locate(tx, f.db.Info().PageSize); err != nil {
				return err
			}
		}
		return nil
	})
}
