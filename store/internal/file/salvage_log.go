package file

import (
	"maps"
	"slices"

	"github.com/lockd/lockd/store/internal/format"
)

// takeHeader takes the header.
func (s *salvage) takeHeader(content []byte, _ bounds, _ error) {
	for e := range soundElements(content) {
		if string(e.key) != headerKey {
			continue
		}
		if row, err := headerRows.Decode(headerKey, e.value); err == nil {
			s.headed, s.last = true, row
		}
	}
}

// checkHeader notes what the header says, or that there is none.
func (s *salvage) checkHeader() {
	if !s.headed {
		s.doubt(allTables, "", "the header cannot be read: it is not known which commit was the "+
			"last")
		return
	}
	if s.last.commit != s.meta.commit {
		s.doubt(allTables, "", "the header is of commit %d, and the last one is %d: the disk has "+
			"lost a write", s.last.commit, s.meta.commit)
	}
	s.index = max(s.index, s.last.index)
}

// addSegment reads the segment that begins with that page. It does nothing if no sector there is
// one of that segment: then the segment is elsewhere, and scanSegments looks for it.
func (s *salvage) addSegment(number byte, page uint64) {
	known := func(c *scan) bool { return c.start == int64(page) }
	if page < firstPage || page >= s.pages || slices.ContainsFunc(s.log, known) {
		return
	}
	size := uint64(mostSegment) + 2*s.pageSize // far behind its end, where no sector is sound
	head := s.read(page, 1)
	_, _, length := extent(head, leafFlag, 0)
	named := (length + uint64(segmentPrefix) + sectorSize) / sectorSize // as segmentOf has it
	size = max(size, min(named*sectorSize, uint64(s.size)))
	pages := min(size/s.pageSize, s.pages-page)
	if !s.afford(pages) {
		return
	}
	content := s.read(page, pages)
	c, _ := newScan(&segment{number: number, start: int64(page)}, content)
	end := len(c.sectors)
	for end > 0 && !c.sectors[end-1].sound {
		end--
	}
	if end == 0 {
		return
	}
	if named*sectorSize != (1+pageOverflow(head))*s.pageSize { // its first page is damaged
		named = uint64(end) + 1
	}
	c.stride = int(named / lanes)
	c.sectors = c.sectors[:min(len(c.sectors), max(end, int(min(named, size))-1))]
	s.log = append(s.log, c)
}

// scanSegments looks for segments in all pages that the walk has not visited, unless it has visited
// both segments.
func (s *salvage) scanSegments() {
	if len(s.log) == segments || s.headed && s.last.log.made == 0 {
		return
	}
	for page := uint64(firstPage); page < s.pages; page++ {
		if s.visited[page] {
			continue
		}
		content := s.read(page, 1)
		for number := range byte(segments) {
			c := &segment{number: number}
			if c.readSector(1, content[sectorSize:2*sectorSize]).sound {
				s.addSegment(number, page)
			}
		}
	}
	if len(s.log) < segments && s.headed {
		s.missRecords("a segment of the log cannot be found")
	}
}

// records returns the payloads of the records that are whole, in a segment that may be damaged.
// They are found by their sectors alone: where a lane ends does not matter, as the next lane has
// other numbers.
func (c *scan) records() map[uint64][]byte {
	found := make(map[uint64][]byte)
	for place := 1; place < len(c.sectors); place++ {
		at := c.sectors[place]
		if !at.sound || at.number == 0 || !c.begins(place) {
			continue
		}
		count := at.sectors()
		if payload, ok := c.payload(place, count); ok {
			found[at.number] = payload
			place += count - 1
		}
	}
	return found
}

// begins reports whether a record certainly begins at that place: if the sectors before it are
// damaged, the record may have begun in them, unless other records took all of them.
func (c *scan) begins(place int) bool {
	gap := 0
	for gap < place-1 && !c.sectors[place-1-gap].sound {
		gap++
	}
	here, before := c.sectors[place], c.sectors[place-1-gap]
	switch {
	case place == 1 || place == c.stride:
		return true
	case gap == 0: // else the start of a record was cut off by a crash, or overwritten
		return before.number+lanes == here.number && before.sectors() == 1
	case !before.sound || before.number == 0 || before.number >= here.number ||
		before.number%lanes != here.number%lanes:
		return false
	}
	others := (here.number-before.number)/lanes - 1 // each has a sector at least
	rest := uint64(before.sectors() - 1)
	return uint64(gap) == rest+others
}

// readLog puts the rows of the log in their places.
func (s *salvage) readLog() {
	s.scanSegments()
	records := make(map[uint64][]byte)
	for _, c := range slices.Backward(s.log) { // the first that was found takes precedence
		maps.Copy(records, c.records())
	}
	numbers := slices.Sorted(maps.Keys(records))
	if s.headed { // those that do not count are older than the tables
		at, _ := slices.BinarySearch(numbers, s.last.log.first)
		numbers = numbers[at:]
	}
	readable := make([]uint64, 0, len(numbers))
	for _, number := range numbers {
		if s.takeRecord(number, records[number]) {
			readable = append(readable, number)
		}
	}
	s.checkRecords(readable)
}

// takeRecord takes the rows of the record, and reports whether the record can be read.
func (s *salvage) takeRecord(number uint64, payload []byte) bool {
	left, rows, err := readRecord(payload)
	if err != nil || left.index >= lastLimit {
		return false
	}
	s.index = max(s.index, left.index)
	if number >= s.last.log.next { // else the header is newer
		s.last.tally = left.tally
	}
	for _, row := range rows {
		if row.Value == nil {
			place := rowPlace{row.Table, row.Key}
			if s.rows[place].index <= left.index {
				delete(s.rows, place)
			}
			continue
		}
		s.takeLogged(row)
	}
	return true
}

// takeLogged takes a row of the log, unless the table has a newer one: a record in between may be
// missing.
func (s *salvage) takeLogged(row format.Write) {
	index, err := format.Changed(row.Table, row.Key, row.Value)
	if err != nil {
		s.miss(row.Table, row.Key, "%s", because(err))
		return
	}
	place := rowPlace{row.Table, row.Key}
	there, ok := s.rows[place]
	if ok && (there.index > index || there.index == index && !s.headed) {
		return
	}
	c := candidate{value: row.Value, index: index}
	if !s.headed {
		c.doubt = ofNoHeader
	}
	s.rows[place] = c
}

// checkRecords notes which records are missing, of those that there must have been.
func (s *salvage) checkRecords(found []uint64) {
	next, end := uint64(0), uint64(0) // the first that is missing, and the first that need not be
	if s.headed {
		next, end = s.last.log.first, s.last.log.next
	} else if len(found) > 0 {
		next = found[0]
	}
	if len(found) > 0 {
		end = max(end, found[len(found)-1]+1)
	}
	if w := lastClean(s.file, s.pageSize); s.headed && w.commit == s.meta.commit {
		end = max(end, w.next)
	}
	for _, number := range append(found, end) {
		switch {
		case number == next+1:
			s.missRecords("record %d of the log is damaged", next)
		case number > next:
			s.missRecords("records %d to %d of the log are damaged", next, number-1)
		}
		next = number + 1
	}
	for _, c := range s.log {
		if place := c.torn(end); place > 0 {
			s.doubt(allTables, "", "sector %d of segment %d of the log is damaged, where a newest "+
				"record would be: it is left out; if a power cut has torn it, nobody was told "+
				"of its commit", place, c.number)
		}
	}
}

// missRecords notes that records are missing, as the text says, and so changes of rows that are
// there.
func (s *salvage) missRecords(text string, args ...any) {
	s.miss(allTables, "", text+": what commits wrote there", args...)
	s.doubt(allTables, "", text+": what commits changed or deleted there is as it was before",
		args...)
}

// torn returns the place of a damaged sector where the next record may be: behind one of the last
// records, or at the start of a lane. It returns 0 if there is none.
func (c *scan) torn(next uint64) int {
	for place := 1; place < len(c.sectors); place++ {
		if c.sectors[place].sound {
			continue
		}
		before := c.sectors[place-1]
		behind := before.sound && before.number != 0 && before.number+lanes >= next
		if place == 1 || place == c.stride || behind {
			return place
		}
	}
	return 0
}
