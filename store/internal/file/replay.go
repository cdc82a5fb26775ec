package file

import (
	"os"
	"sort"
)

// scan is a segment as it was found in a file.
type scan struct {
	*segment
	content []byte   // from its first page on
	sectors []sector // by place
}

// newScan reads all sectors in the content. The sector at place 0, which is bbolt's, is not sound.
// The error is about the first other sector that is not as it was written there at some time; the
// scan has the others.
func newScan(s *segment, content []byte) (c *scan, err error) {
	c = &scan{segment: s, content: content, sectors: make([]sector, len(content)/sectorSize)}
	for place := 1; place < len(c.sectors); place++ {
		c.sectors[place] = s.readSector(place, c.raw(place))
		if err == nil && !c.sectors[place].sound {
			err = errSector(place, s.number)
		}
	}
	return c, err
}

func (c *scan) raw(place int) []byte {
	return c.content[place*sectorSize : (place+1)*sectorSize]
}

// payload returns the payload of the sectors, if they are all of one record.
func (c *scan) payload(place, count int) ([]byte, bool) {
	if count == 0 || count > len(c.sectors)-place {
		return nil, false
	}
	head := c.sectors[place]
	payload := make([]byte, 0, count*sectorRoom)
	for i := range count {
		next := c.sectors[place+i]
		left := head.left - uint32(i*sectorRoom)
		if !next.sound || next.number != head.number || next.left != left {
			return nil, false
		}
		payload = append(payload, c.raw(place + i)[sectorHead:]...)
	}
	return payload[:head.left], true
}

// take takes the payload of the record if the record is the next one in its lane, and is whole. It
// clears the numbers of the record's sectors, so that cutOff passes over them.
func (c *scan) take(number uint64) (payload []byte, ok bool) {
	lane := int(number % lanes)
	from := c.used[lane]
	if from == c.room() {
		return nil, false
	}
	place := c.place(lane, from)
	head := c.sectors[place]
	if head.number != number || uint64(head.left) > uint64((c.room()-from)*sectorRoom) {
		return nil, false
	}
	count := head.sectors()
	if payload, ok = c.payload(place, count); !ok {
		return nil, false
	}
	for i := range count {
		c.sectors[place+i].number = 0
	}
	c.used[lane] += count
	if c.first == 0 {
		c.first = number
	}
	return payload, true
}

// cutOff returns the sectors of the record that a crash has cut off, or nil if there is none. A
// crash leaves sectors of no other record, except of records before the first one that counts.
func (c *scan) cutOff(first, number uint64) (*sectorRun, error) {
	var found *sectorRun
	for lane := range lanes {
		for i := range c.room() {
			s := c.sectors[c.place(lane, i)]
			switch {
			case s.number < first:
				continue
			case s.number != number, lane != int(number%lanes), i < c.used[lane],
				s.left == 0, uint64(s.left) > uint64(c.room()*sectorRoom):
				return nil, errLost
			}
			from := c.used[lane]
			size := int(s.left) + (i-from)*sectorRoom
			e := &sectorRun{c.segment, c.place(lane, from), sectorsFor(size)}
			if from+e.sectors > c.room() || found != nil && *found != *e {
				return nil, errLost
			}
			found = e
		}
	}
	return found, nil
}

var errLost = corrupt("its log lacks a record that was followed by others: " +
	"the disk has lost a write")

// replay reads the records that count, from the segments of a file with that header, and returns
// what the last commit left.
func (l *commitLog) replay(scans []*scan, last header) (header, error) {
	for _, c := range scans {
		l.segments[c.number] = c.segment
	}
	l.next, l.rows = last.log.first, newMemtable()
	newest := header{} // what the last record left
	for payload, ok := l.takeNext(scans); ok; payload, ok = l.takeNext(scans) {
		left, rows, err := readRecord(payload)
		if err == nil {
			err = l.checkOrder(left, newest, last)
		}
		if err != nil {
			return last, corrupt("record %d of its log: %w", l.next, err)
		}
		l.rows.add(rows)
		l.newest, newest = payload, left
		l.next++
	}
	if l.next < last.log.next {
		return last, errLost
	}
	if l.filling == nil {
		l.filling = l.segments[0]
	}
	if l.next > last.log.next {
		last.index, last.tally = newest.index, newest.tally
	}
	if last.index >= lastLimit {
		return last, errLastIndex(last.index)
	}
	// The checkpoint has taken the rows up to that one.
	taken := func(i int) bool { return last.log.taken.Before(l.left[i]) }
	l.left = l.left[sort.Search(len(l.left), taken):]
	return last, l.findCut(scans, last.log.first)
}

// checkOrder returns an error if the next record's index cannot follow the index of the record
// before, or is on the wrong side of the header's index.
func (l *commitLog) checkOrder(left, before, last header) error {
	known := l.next < last.log.next // to the header
	switch {
	case left.index < before.index,
		known && left.index > last.index,
		!known && left.index < last.index:
		return errIndex
	}
	return nil
}

// takeNext takes the next record from the segment where the last one was, or from the start of the
// other one.
func (l *commitLog) takeNext(scans []*scan) (payload []byte, ok bool) {
	for _, c := range scans {
		if c.segment != l.filling && c.first != 0 { // it has older records that count
			continue
		}
		if payload, ok = c.take(l.next); !ok {
			continue
		}
		if c.segment != l.filling {
			l.change(c.segment)
		}
		return payload, true
	}
	return nil, false
}

// findCut finds the record that a crash has cut off. It would have been the next one.
func (l *commitLog) findCut(scans []*scan, first uint64) error {
	for _, c := range scans {
		cut, err := c.cutOff(first, l.next)
		switch {
		case err != nil:
			return err
		case cut == nil:
			continue
		case l.cut != nil, c.segment == l.settled:
			return errLost
		}
		l.cut = cut
	}
	return nil
}

// outdated reports whether the log was written to since it was read: the next record, or half of
// it, is where it would be.
func (l *commitLog) outdated(file *os.File) (bool, error) {
	raw := make([]byte, sectorSize)
	for _, run := range l.ahead() {
		if _, err := file.ReadAt(raw, run.segment.offset(run.place)); err != nil {
			return false, cause(err)
		}
		now := run.segment.readSector(run.place, raw)
		if !now.sound || now.number == l.next {
			return true, nil
		}
	}
	return false, nil
}
