package file

import (
	"github.com/google/btree"
	"github.com/lockd/lockd/store/internal/format"
)

// The sizes of the log. Tests make them smaller.
var (
	firstSegment = 32 << 10 // bytes of the first segments of a file
	leastSegment = 2 << 20  // the least bytes of a later segment
	rowSegment   = 6        // bytes of a later segment for each row of the file
	mostSegment  = 4 << 20  // the most bytes of a later segment
	stepSectors  = 32       // sectors of a lane that are used between two steps of a checkpoint
	stepRows     = 32       // the least rows that a step takes, except the last step
	manyRows     = 512      // a step with this many rows is due at once
)

const lateCommits = 3 // commits of a process that go to the tables before there is a log

// commitLog is the log of a file. The zero value is for a file without a log.
type commitLog struct {
	segments [segments]*segment
	filling  *segment       // where records go
	settled  *segment       // whose rows go to the tables; nil: they are all there
	next     uint64         // the number of the next record
	rows     *memtable      // of the filling segment
	left     []format.Write // rows of the settled segment that are not in their tables, in order
	total    int            // how many rows the settled segment had when it was settled

	latest  []format.Write // rows of the last record, if its segment does not have them yet
	stepped int            // sectors that were used at the last step
	direct  int            // commits that went to the tables since a log was last tried for
	cut     *sectorRun     // a record cut off or withdrawn: blanked before anything is written
	unclear bool           // that record may be in the file, whole or in part
	newest  []byte         // payload of the last record, as it was read, until that is on disk
}

// sectorRun is sectors that lie one behind the other in a lane.
type sectorRun struct {
	segment *segment
	place   int
	sectors int
}

// none reports whether the file has no log.
func (l *commitLog) none() bool { return l.filling == nil }

// empty reports whether no record counts.
func (l *commitLog) empty() bool { return l.none() || l.settled == nil && l.filling.first == 0 }

// wanted is how many bytes a segment should have in a file with that number of rows.
func wanted(rows uint64) int {
	return max(leastSegment, int(min(uint64(rowSegment)*rows, uint64(mostSegment))))
}

// takes reports whether a payload goes to the log. A payload over half a lane goes to the tables at
// no higher cost: it has so many rows that neighbours share a page, or rows that fill whole pages.
// The lane is one of the smaller segment, so that any record fits in either segment when the two
// change places.
func (l *commitLog) takes(size int) bool {
	return !l.none() && sectorsFor(size) <= l.longest()
}

// longest is how many sectors a record has at most.
func (l *commitLog) longest() int {
	return min(l.segments[0].room(), l.segments[1].room()) / 2
}

// small reports whether a segment is small in a file that should have segments of that size.
func (l *commitLog) small(size int) bool {
	return l.segments[0].small(size) || l.segments[1].small(size)
}

// lane is where the next record goes.
func (l *commitLog) lane() int { return int(l.next % lanes) }

// reserve returns where a record of that number of sectors goes. If the filling segment has no room
// for the record, the segments change places; then there must be no settled segment.
func (l *commitLog) reserve(sectors int) sectorRun {
	if l.full(sectors) {
		l.change(l.segments[1-l.filling.number])
	}
	s, lane := l.filling, l.lane()
	return sectorRun{s, s.place(lane, s.used[lane]), sectors}
}

// change makes next the filling segment, and the one that was filling, if any, the settled segment.
func (l *commitLog) change(next *segment) {
	l.settled, l.filling = l.filling, next
	l.left, l.rows = l.rows.list(), newMemtable()
	l.total, l.stepped = len(l.left), 0
}

// ahead returns where the next record may go, with as many sectors as it may have.
func (l *commitLog) ahead() (runs []sectorRun) {
	if l.none() {
		return nil
	}
	lane := l.lane()
	for _, s := range l.segments {
		if left := s.room() - s.used[lane]; s != l.settled && left > 0 {
			at := s.place(lane, s.used[lane])
			runs = append(runs, sectorRun{s, at, min(left, l.longest())})
		}
	}
	return runs
}

// full reports whether the filling segment has no room for a record of that number of sectors.
func (l *commitLog) full(sectors int) bool {
	return l.filling.used[l.lane()]+sectors > l.filling.room()
}

// after returns what the header says of the log after a step that moves that number of rows: all
// that are left, or at least one.
func (l *commitLog) after(rows int) logState {
	switch {
	case rows < len(l.left):
		taken := format.Write{Table: l.left[rows-1].Table, Key: l.left[rows-1].Key}
		return logState{first: l.settled.first, next: l.next, taken: taken}
	case l.filling.first != 0:
		return logState{first: l.filling.first, next: l.next}
	}
	return logState{first: l.next, next: l.next}
}

// list returns the rows that the tables do not have yet, in order, with the newer rows in their
// places.
func (l *commitLog) list(newer []format.Write) []format.Write {
	if l.empty() {
		return newer
	}
	all := newMemtable()
	all.add(l.left)
	all.add(l.rows.list())
	all.add(newer)
	return all.list()
}

// due reports whether a step of the checkpoint is due, and how many rows it has to move: a part of
// the settled segment that grows with the filling one, and all when an eighth of that is left.
func (l *commitLog) due() (rows int, due bool) {
	if l.settled == nil {
		return 0, false
	}
	used, room := l.filling.fill(), l.filling.room()*7/8
	target := int(int64(l.total) * int64(min(used, room)) / int64(room))
	rows = target - (l.total - len(l.left))
	early := used-l.stepped < stepSectors && rows < manyRows || rows < stepRows
	return rows, !early || rows == len(l.left)
}

// advance notes that a step is durable, which has moved that number of rows.
func (l *commitLog) advance(rows int) {
	l.left, l.stepped = l.left[rows:], l.filling.fill()
	if len(l.left) == 0 {
		l.settled.reset()
		l.settled, l.left = nil, nil
	}
}

// clear empties the log: the tables have all rows.
func (l *commitLog) clear() {
	if l.segments[0] == nil {
		return
	}
	for _, s := range l.segments {
		s.reset()
	}
	*l = commitLog{
		segments: l.segments, filling: l.segments[0], rows: newMemtable(), next: max(1, l.next),
	}
}

const memtableDegree = 32

// memtable has the newest row of each place in some records, deleted rows included.
type memtable struct{ *btree.BTreeG[format.Write] }

func newMemtable() *memtable { return &memtable{btree.NewG(memtableDegree, format.Write.Before)} }

// add puts rows in the place of those that were there.
func (m *memtable) add(rows []format.Write) {
	for _, row := range rows {
		m.ReplaceOrInsert(row)
	}
}

// list returns the rows, in order.
func (m *memtable) list() []format.Write {
	rows := make([]format.Write, 0, m.Len())
	m.Ascend(func(row format.Write) bool {
		rows = append(rows, row)
		return true
	})
	return rows
}
