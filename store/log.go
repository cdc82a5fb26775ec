package store

import (
	"slices"

	"go.etcd.io/bbolt"
)

// Keys are written at random, and a commit that writes many of them changes nearly as many pages,
// each of which bbolt reads, splits and writes. So their rows go to the log: those of one commit
// are one record, in a bucket beside the tables. A checkpoint takes them to their table later, in
// order, so that neighbours share a page, and without those that were written again since. It rides
// in the commits that follow, a few rows in each, so that none is long. The rows of other tables
// lie in an order in which those of one commit are neighbours already.
//
// Whatever is done to the log and to the tables is done in bbolt's transaction of some commit. So
// at any time, after any crash, the rows of the last commit are those of the tables, with those of
// the log in their places.
const logBucket = "log"

// When rows go to the log, and how long they wait there. The more wait, the more of them share a
// page then; but they are in memory meanwhile, and an Open has to put each in its place.
const (
	leastLog     = 128 << 10 // bytes that the log grows to before a checkpoint begins,
	logBytesAKey = 4         // or so many for each key of the store, if that is more
	fewKeys      = 4         // so many rows change no more pages than a record does
	denseKeys    = 8         // if one of so many keys is written, many of them share a page
)

// commitLog is what the log has.
type commitLog struct {
	filling *logged // what was committed since the checkpoint began
	settled *logged // what that takes to the table; empty: there is no checkpoint
	taken   int     // how many of its rows are there
	last    string  // the key of the last one
	dropped int     // how many of its records are gone
}

// newCommitLog begins with what a file has: the first checkpoint takes it.
func newCommitLog(found *logged) commitLog {
	return commitLog{filling: newLogged(), settled: found}
}

func (l *commitLog) empty() bool { return l.filling.empty() && l.settled.empty() }

// has reports whether a record may have any of the keys: it would hide what is written to the
// table. Those that a checkpoint has taken are still in their records.
func (l *commitLog) has(keys []rowWrite) bool {
	return slices.ContainsFunc(keys, func(row rowWrite) bool {
		return l.filling.has(row.key) || l.settled.has(row.key)
	})
}

// rows is how many there are.
func (l *commitLog) rows() int { return l.filling.rows.Len() + l.settled.rows.Len() }

// step is what one commit does: it writes to the tables only, or it clears the log too, or it
// writes a record and goes on with the checkpoint.
type step struct {
	tables []rowWrite // what the tables get
	clear  bool       // the log goes

	number uint64     // of the record
	record []byte     // nil: there is none
	logged []rowWrite // what is in it
	taken  int        // how many rows of the checkpoint are in tables, or need not be
	last   string     // the key of the last one
	drop   []uint64   // records that nothing needs any more
	done   bool       // the checkpoint ends
}

// plan decides what a commit of the rows does, in a store that has so many keys then. The commit
// may fail: what it does counts when keep is called. That a checkpoint begins is no more than
// another name for what the log has.
func (l *commitLog) plan(rows []rowWrite, total int, number uint64) (step, error) {
	keys, others := splitKeys(rows)
	size, limit := recordSize(keys), max(leastLog, logBytesAKey*total)
	switch {
	case len(keys) <= fewKeys && !l.has(keys):
		return step{tables: rows}, nil
	case l.empty() && denseKeys*len(keys) >= total:
		return step{tables: rows}, nil
	case size > limit, l.rows()+len(keys) <= fewKeys:
		return l.flush(rows), nil
	case l.settled.empty() && l.filling.size+size > limit:
		l.settled, l.filling = l.filling, newLogged()
	}
	record, logged, err := makeRecord(keys, number, size)
	if err != nil {
		return step{}, err
	}
	s := step{tables: others, number: number, record: record, logged: logged}
	// A file that was closed before each checkpoint ended, again and again, has more than the
	// limit: the more, the sooner this one has to end; at three times the limit it ends at once.
	excess := max(0, l.settled.size-limit)
	s.checkpoint(l, size, limit-excess/2-l.filling.size)
	return s, nil
}

// splitKeys splits rows into those of keys, which is the first table, and others.
func splitKeys(rows []rowWrite) (keys, others []rowWrite) {
	n := 0
	for n < len(rows) && rows[n].table == tableKeys {
		n++
	}
	return rows[:n], slices.Clip(rows[n:])
}

// checkpoint does as large a part of what is left to do as the record is of the room in the log, so
// that the one ends with the other. Rows go to the table in order; those that the log has anew need
// not. When all are there the records go, the oldest first: what is left of the log is right at any
// time.
func (s *step) checkpoint(l *commitLog, size, room int) {
	rows, records := l.settled.rows.Len()-l.taken, l.settled.records[l.dropped:]
	share := rows + len(records)
	if size < room {
		share = int(int64(share)*int64(size)/int64(room)) + 1
	}
	s.last = l.last
	l.settled.rows.AscendGreaterOrEqual(rowWrite{key: l.last}, func(row rowWrite) bool {
		switch {
		case row.key == l.last && l.taken > 0:
			return true
		case s.taken == share:
			return false
		}
		s.taken, s.last = s.taken+1, row.key
		if !l.filling.has(row.key) {
			s.tables = append(s.tables, row)
		}
		return true
	})
	if s.taken == rows {
		s.drop = records[:min(share-s.taken, len(records))]
		s.done = len(s.drop) == len(records)
	}
}

// flush takes all that the log has, and the rows, to the tables.
func (l *commitLog) flush(rows []rowWrite) step {
	if l.empty() {
		return step{tables: rows}
	}
	keys, others := splitKeys(rows)
	all := &logged{rows: l.settled.rows.Clone()}
	all.add(l.filling.list())
	all.add(keys)
	return step{tables: append(all.list(), others...), clear: true}
}

// keep is called when the commit has done the step.
func (l *commitLog) keep(s *step) {
	if s.clear {
		*l = newCommitLog(newLogged())
	}
	if s.record == nil {
		return
	}
	l.taken, l.last, l.dropped = l.taken+s.taken, s.last, l.dropped+len(s.drop)
	if s.done {
		*l = commitLog{filling: l.filling, settled: newLogged()}
	}
	l.filling.add(s.logged)
	l.filling.records = append(l.filling.records, s.number)
	l.filling.size += len(s.record)
}

// write does in the transaction what was decided.
func (s *step) write(tx *bbolt.Tx) error {
	if err := writeTables(tx, s.tables, bbolt.DefaultFillPercent); err != nil {
		return err
	}
	name := []byte(logBucket)
	if s.clear {
		return tx.DeleteBucket(name)
	}
	if s.record == nil {
		return nil
	}
	log, err := tx.CreateBucketIfNotExists(name)
	if err != nil {
		return err
	}
	for _, number := range s.drop {
		if err := log.Delete(recordKey(number)); err != nil {
			return err
		}
	}
	log.FillPercent = 1 // records come in order
	return log.Put(recordKey(s.number), s.record)
}

// version is the format that the file has after the step: an older program knows no log, and can do
// without it where there is none.
func (s *step) version(l *commitLog) uint64 {
	if s.record == nil && (s.clear || l.empty()) {
		return plainVersion
	}
	return logVersion
}
