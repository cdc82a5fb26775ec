package file

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/lockd/lockd/store/internal/format"
)

// String says which keys they are.
func (b bounds) String() string {
	text := "the first"
	if len(b.least) > 0 {
		text = fmt.Sprintf("%.100q", b.least)
	}
	if b.limit == nil {
		return text + " to the last"
	}
	return fmt.Sprintf("%s to before %.100q", text, b.limit)
}

// has reports whether the key is within the bounds.
func (b bounds) has(key []byte) bool {
	return bytes.Compare(key, b.least) >= 0 && (b.limit == nil || bytes.Compare(key, b.limit) < 0)
}

// lose notes that rows of the table may be missing.
func (s *salvage) lose(table byte, in bounds) { s.lost[table] = append(s.lost[table], in) }

// soundElements yields what seem to be elements of a leaf: all of them if the leaf is sound. The
// elements of a leaf do not overlap, but in a value that looks like a leaf each element may span
// most of the value. So soundElements yields at most four times the bytes of the content in all.
func soundElements(content []byte) iter.Seq[element] {
	return func(yield func(element) bool) {
		if len(content) < headSize+elementSize {
			return
		}
		// The first key begins behind the last element: so it says how many there are.
		first, _, _ := extent(content, leafFlag, 0)
		count := max(elementCount(content), int(first/elementSize)-1)
		left := 4 * uint64(len(content))
		for i := range min(count, (len(content)-headSize)/elementSize) {
			position, keySize, valueSize := extent(content, leafFlag, i)
			value, end := position+keySize, position+keySize+valueSize
			if keySize == 0 || end > uint64(len(content)) || keySize+valueSize > left {
				continue
			}
			left -= keySize + valueSize
			e := element{key: content[position:value], value: content[value:end]}
			if e.flags = elementFlags(content, i); !yield(e) {
				return
			}
		}
	}
}

// takeLeaf takes the rows of a leaf of the table.
func (s *salvage) takeLeaf(table byte, content []byte, in bounds, damage error) {
	if damage != nil {
		s.lose(table, in)
		s.miss(table, "", "rows from %s may be missing: %s", in, because(damage))
		for e := range soundElements(content) {
			_ = s.take(table, e.key, e.value, s.doubts) // what is not a row is among the lost ones
		}
		return
	}
	gap, broken := in, false // between two rows that are sound
	for e := range soundElements(content) {
		err := s.take(table, e.key, e.value, s.doubts)
		if err != nil {
			broken = true
			s.miss(table, string(e.key), "%s", because(err))
			continue
		}
		if gap.limit = e.key; broken {
			s.lose(table, gap)
		}
		gap, broken = bounds{least: e.key}, false
	}
	if broken {
		gap.limit = in.limit
		s.lose(table, gap)
	}
}

// take takes a row, if its checksum holds and its content is that of a row. The row replaces one
// that was found before only if the earlier one is doubtful, and this one is sure or newer.
func (s *salvage) take(table byte, key, value []byte, doubt string) error {
	index, err := format.Changed(table, string(key), value)
	if err != nil {
		return err
	}
	if index < lastLimit {
		s.index = max(s.index, index)
	}
	place := rowPlace{table, string(key)}
	there, ok := s.rows[place]
	if !ok || there.doubt != "" && (doubt == "" || there.index < index) {
		s.rows[place] = candidate{value, index, doubt}
	}
	return nil
}

// scanOthers looks for rows that are lost in the pages that the walk has not come to.
func (s *salvage) scanOthers() {
	any := false
	for table := range format.TableCount {
		s.lost[table] = merged(s.lost[table])
		any = any || len(s.lost[table]) > 0
	}
	if !any {
		return
	}
	for page := uint64(firstPage); page < s.pages; page++ {
		if s.visited[page] {
			continue
		}
		content := s.read(page, 1)
		if pageNumber(content) == page { // else that may be anything
			content = s.withOverflow(page, content)
		}
		s.scan(content)
	}
}

// scan takes the rows of what seems to be a leaf, of whatever table.
func (s *salvage) scan(content []byte) {
	for e := range soundElements(content) {
		if e.flags != bucketFlag {
			s.takeLost(e.key, e.value)
		} else if len(e.value) > bucketSize { // a small table is in the list of the tables
			for row := range soundElements(e.value[bucketSize:]) {
				s.takeLost(row.key, row.value)
			}
		}
	}
}

// takeLost takes the row, if it may be one of those that are lost.
func (s *salvage) takeLost(key, value []byte) {
	for table := range format.TableCount {
		if within(s.lost[table], key) {
			_ = s.take(table, key, value, outOfUse) // most rows are not of this table
		}
	}
}

// merged returns the bounds in order, without those that begin within others. There may be as many
// as rows, and each row that is found is looked for among them.
func merged(all []bounds) (kept []bounds) {
	slices.SortFunc(all, func(a, b bounds) int { return bytes.Compare(a.least, b.least) })
	for _, in := range all {
		if len(kept) == 0 || !kept[len(kept)-1].has(in.least) {
			kept = append(kept, in)
			continue
		}
		last := &kept[len(kept)-1]
		if in.limit == nil || last.limit != nil && bytes.Compare(in.limit, last.limit) > 0 {
			last.limit = in.limit
		}
	}
	return kept
}

// within reports whether one of the bounds, which are merged, has the key.
func within(all []bounds, key []byte) bool {
	above := sort.Search(len(all), func(i int) bool { return bytes.Compare(all[i].least, key) > 0 })
	return above > 0 && all[above-1].has(key)
}

// checkTally says so if these are not the rows that the last commit left.
func (s *salvage) checkTally() {
	var found format.Tally
	for _, row := range s.rows {
		found.Add(format.StoredChecksum(row.value))
	}
	if left := s.last.tally; found != left {
		s.doubt(allTables, "", "there are %d rows with the checksum %x, and the last commit left "+
			"%d with %x: the disk has lost a write, and some rows may be older than what was "+
			"committed last, or have been deleted", found.Rows, found.Sum, left.Rows, left.Sum)
	}
}
