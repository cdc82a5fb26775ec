package file

import (
	"fmt"

	"github.com/lockd/lockd/store/internal/format"
)

// stepping is a step of the checkpoint that runs. It writes to the tables while commits write to
// the log. The commits change none of the step's rows, and do not write to the segment that the
// step makes anew.
type stepping struct {
	rows    int // how many rows of the settled segment it moves
	commit  tableCommit
	unclear bool  // the step may be in the file, although it has failed
	err     error // why the step has failed
	ended   chan struct{}
}

// Tidy does the work that the last commit to the log has left, unless it is done already, or the
// file is not ready to be written to. If a step of the checkpoint is due, Tidy returns it, and the
// caller has to run it; commits may go on meanwhile. An error of the step does not concern the last
// commit, which is durable: see conclude.
func (f *File) Tidy() (step func() error) {
	f.conclude()
	if f.tidied || !f.ready() {
		return nil
	}
	f.tidied = true
	if l := &f.log; l.latest != nil {
		l.rows.add(l.latest)
		l.latest = nil
	}
	rows, due := f.log.due()
	if !due || f.failed != nil || f.stepping != nil {
		return nil
	}
	return f.begin(rows)
}

// Untidy reports whether Tidy has much to do.
func (f *File) Untidy() bool {
	f.conclude()
	_, due := f.log.due()
	return !f.tidied && (due && f.stepping == nil || len(f.log.latest) >= manyRows)
}

// begin begins a step that moves that number of rows, and returns the function that runs the step.
// It leaves out rows of which the filling segment has a newer version.
func (f *File) begin(rows int) func() error {
	l := &f.log
	c := tableCommit{rows: make([]format.Write, 0, rows), last: f.next(l.after(rows))}
	for _, row := range l.left[:rows] {
		if !l.rows.Has(row) {
			c.rows = append(c.rows, row)
		}
	}
	size := wanted(f.last.tally.Rows)
	if rows == len(l.left) && l.settled.small(size) {
		c.made = append(c.made, f.newSegment(l.settled.number, size))
	}
	begun := &stepping{rows: rows, commit: c, ended: make(chan struct{})}
	f.stepping = begun
	return func() error {
		defer close(begun.ended)
		done, unclear, err := f.tables.commit(begun.commit)
		begun.commit, begun.unclear = done, unclear
		if err != nil {
			begun.err = fmt.Errorf("checkpoint: %w", reveal(err))
		}
		return begun.err
	}
}

// wait waits for the end of the step that is under way, if there is one.
func (f *File) wait() {
	if f.stepping != nil {
		<-f.stepping.ended
		f.conclude()
	}
}

// conclude takes note of the step that has ended, if one has. A step that failed because the disk
// is full is tried again later, at the latest when the log is full.
func (f *File) conclude() {
	s := f.stepping
	if s == nil {
		return
	}
	select {
	case <-s.ended:
	default:
		return
	}
	f.stepping = nil
	switch {
	case s.err == nil:
		f.committed(s.commit)
		f.log.advance(s.rows)
	case s.unclear:
		f.failed = s.err
	default:
		f.log.stepped = f.log.filling.fill()
	}
}

// next returns the header of the last commit, with log in place of what it says of the log.
func (f *File) next(log logState) header {
	last := f.last
	last.log, last.log.made = log, f.last.log.made
	return last
}

// committed takes note of a commit of bbolt's. Commits to the log may have come since it was begun.
func (f *File) committed(c tableCommit) {
	f.last.commit, f.last.log = c.last.commit, c.last.log
	for _, s := range c.made {
		f.log.segments[s.number] = s
	}
}

// finish takes the rest of the settled segment to the tables.
func (f *File) finish() error {
	if f.wait(); f.failed != nil {
		return f.failed
	}
	if f.log.settled == nil {
		return nil
	}
	err := f.begin(len(f.log.left))()
	f.conclude()
	return err
}

// writeTables commits the rows to the tables, with all that the log has.
func (f *File) writeTables(rows []format.Write, last header) error {
	if f.wait(); f.failed != nil {
		return f.failed
	}
	l := &f.log
	after := max(1, l.next)
	c := tableCommit{
		rows: l.list(rows), made: f.newSegments(last.tally.Rows),
		last: f.next(logState{first: after, next: after}),
	}
	c.last.index, c.last.tally = last.index, last.tally
	c, _, err := f.tables.commit(c)
	if err != nil {
		return err
	}
	l.direct = (l.direct + 1) % (lateCommits + 1) // without room for a log, it is tried later
	f.committed(c)
	f.last.index, f.last.tally = last.index, last.tally
	l.clear()
	return nil
}

// newSegments returns the segments, if any, that a commit to the tables adds to a file with that
// number of rows. A file gets small segments after some commits, and large ones with a commit that
// is too large for the small ones.
func (f *File) newSegments(rows uint64) []*segment {
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

// newSegment returns an empty segment of that many bytes, or a little more.
func (f *File) newSegment(number byte, size int) *segment {
	page := f.tables.page
	pages := max(1, (size/lanes+page-1)/page) // of a lane
	return &segment{number: number, stride: pages * page / sectorSize}
}
