package file_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
)

// Ensure that Recover takes each record of the log that is whole, says which are not, and leaves
// out a newest one that may never have been whole.
func TestRecover_Records(t *testing.T) {
	w := newWide(t, 300)
	w.fillLog(1)
	const records = 6
	var first uint64
	var sectors [records][]int // by record: where in the file its sectors are
	for i := range records {
		before := contentOf(t, w.path)
		w.must(write(w.Store, func() { w.put(w.key(i), 900+i) }))
		after := contentOf(t, w.path)
		for at := 0; at < len(before); at += 512 {
			if !bytes.Equal(before[at:at+512], after[at:at+512]) {
				sectors[i] = append(sectors[i], at)
			}
		}
		if i == 0 {
			first = logOf(t, w.path).Next - 1
		}
		if len(sectors[i]) != 2 || sectors[i][0] < 2*os.Getpagesize() {
			t.Fatalf("record %d was written at %d", i, sectors[i])
		}
	}
	w.must(w.Close())
	if next := readLog(t, w.path).Next; next != first+records {
		t.Fatalf("there are %d records, want %d", next-first, records)
	}
	intact := contentOf(t, w.path)
	lose := func(what string, sectors []int, lost ...int) *file.Recovered {
		t.Helper()
		content := bytes.Clone(intact)
		for _, at := range sectors {
			content[at+100] ^= 1
		}
		found := recoverContent(t, w.path, content)
		if len(found.Keys) != 300 {
			t.Errorf("%s: %d keys", what, len(found.Keys))
		}
		for i := range records {
			want := 900 + i
			if slices.Contains(lost, i) {
				want = 20 // or 40, by fillLog
			}
			if got := len(found.Keys[i].Value); got != want && (want != 20 || got != 40) {
				t.Errorf("%s: the row of record %d has %d bytes, want %d", what, i, got, want)
			}
		}
		return found
	}
	if found := lose("nothing", nil); len(found.Missing)+len(found.Doubtful) > 0 {
		t.Errorf("nothing: missing %+v, doubtful %+v", found.Missing, found.Doubtful)
	}
	for i := range records - 1 {
		for _, at := range sectors[i] {
			found := lose(fmt.Sprint("record ", i), []int{at}, i)
			text := fmt.Sprintf("record %d of the log is damaged", first+uint64(i))
			if len(found.Missing) != 1 || !told(found.Missing, "", "", text) ||
				!told(found.Doubtful, "", "", text) {
				t.Errorf("record %d: missing %+v, doubtful %+v", i, found.Missing, found.Doubtful)
			}
		}
	}
	for i := range records - 2 {
		found := lose(fmt.Sprint("two from ", i), []int{sectors[i][0], sectors[i+1][1]}, i, i+1)
		number := first + uint64(i)
		text := fmt.Sprintf("records %d to %d of the log are damaged", number, number+1)
		if len(found.Missing) != 1 || !told(found.Missing, "", "", text) {
			t.Errorf("two records from %d on: missing %+v", i, found.Missing)
		}
	}
	for _, at := range sectors[records-1] {
		found := lose("newest record", []int{at}, records-1)
		if len(found.Missing) != 0 || len(found.Doubtful) != 1 ||
			!strings.Contains(found.Doubtful[0].Text, "where a newest record would be") {
			t.Errorf("newest: missing %+v, doubtful %+v", found.Missing, found.Doubtful)
		}
	}
	// Without the header it is not known which records count.
	intact = withoutHeader(intact)
	found := lose("the header", nil)
	for i := range records {
		if !told(found.Doubtful, "keys", w.key(i), "it is of the log, and the header is missing") {
			t.Errorf("no header: nothing is said of record %d", i)
		}
	}
	if !told(found.Doubtful, "", "", "the header cannot be read") || len(found.Missing) > 0 {
		t.Errorf("no header: missing %+v", found.Missing)
	}
}

// Ensure that Recover does not take the rest of a record for a record, even if the rest reads like
// one: not of the newest record, of which a crash has left the rest, and not of one in the middle,
// whose start the disk has lost.
func TestRecover_RestOfARecord(t *testing.T) {
	const room = 512 - 16 // of a sector for the payload
	w := newWide(t, 300)
	w.fillLog(3)
	path, key := w.copied(), w.key(0)
	head := logOf(t, w.path).Head
	row := schema.Key{Key: key, Value: []byte("never committed"), ModifyIndex: head.Index}
	rest, err := file.RecordOf(head, []file.RowWrite{
		file.Write(0, key, format.KeyRows.Append(nil, key, &row)),
	})
	w.must(err)
	payload := append(make([]byte, room), rest...)
	w.must(file.AppendRecord(path, 0, payload, func(sector int) bool { return sector > 0 }))
	found, err := file.Recover(path, file.Options{})
	w.must(err)
	if len(found.Missing)+len(found.Doubtful) > 0 || bytes.Equal(found.Keys[0].Value, row.Value) {
		t.Errorf("newest: %q, missing %+v, doubtful %+v", found.Keys[0].Value, found.Missing,
			found.Doubtful)
	}

	lost := 0
	for size := range room { // one of these has the rest begin within the first row
		before := contentOf(t, w.path)
		w.must(write(w.Store, func() {
			for i, size := range []int{size, 10} {
				w.Keys.Put(w.key(i), schema.Key{Key: w.key(i), Value: make([]byte, size),
					CreateIndex: 1, ModifyIndex: w.Next(), LockIndex: 1, Fence: w.Next()})
			}
		}))
		after, number := contentOf(t, w.path), logOf(t, w.path).Next-1
		for range 2 {
			w.must(write(w.Store, func() { w.put(w.key(9), size) }))
		}
		content := contentOf(t, w.path)
		var sectors []int
		for at := 0; at < len(before) && len(before) == len(content); at += 512 {
			if !bytes.Equal(before[at:at+512], after[at:at+512]) {
				sectors = append(sectors, at)
			}
		}
		if len(sectors) == 0 || len(sectors) > 2 || logOf(t, w.path).First > number {
			continue // a checkpoint went on with it, or is done
		}
		lost++
		copy(content[sectors[0]:sectors[0]+512], before[sectors[0]:])
		found := recoverContent(t, path, content)
		if !told(found.Missing, "", "", fmt.Sprintf("record %d of the log is damaged", number)) {
			t.Errorf("record %d, size %d: missing %+v", number, size, found.Missing)
		}
	}
	if lost < room/2 {
		t.Errorf("%d records were tried", lost)
	}
}

// Ensure that Recover takes all records if any part of the first page of a segment is damaged that
// has none of them.
func TestRecover_HeadOfASegment(t *testing.T) {
	w := newWide(t, 300)
	w.fillLog(1)
	for i := range 6 {
		w.must(write(w.Store, func() { w.put(w.key(i), 900) }))
	}
	w.must(w.Close())
	intact := contentOf(t, w.path)
	segments := 0
	for at := 0; at < len(intact); at += os.Getpagesize() {
		if !bytes.HasPrefix(intact[at+headSize+leafElement:], []byte("log")) {
			continue
		}
		segments++
		for bit := 0; bit < 8*(headSize+leafElement+3); bit++ {
			content := bytes.Clone(intact)
			content[at+bit/8] ^= 1 << (bit % 8)
			found := recoverContent(t, w.path, content)
			for _, remark := range found.Missing {
				if strings.HasPrefix(remark.Text, "record") {
					t.Errorf("segment %d, bit %d: %s", segments, bit, remark.Text)
				}
			}
		}
	}
	if segments < 2 {
		t.Errorf("%d segments", segments)
	}
}

// keysText returns the keys that were recovered, as dump has them.
func keysText(found *file.Recovered) string {
	rows := func(yield func(string, *schema.Key) bool) {
		for i := range found.Keys {
			if !yield(found.Keys[i].Key, &found.Keys[i]) {
				return
			}
		}
	}
	return string(dumpTable(nil, &format.KeyRows, rows))
}

// withoutHeader returns the content of a file with its header lost.
func withoutHeader(content []byte) []byte {
	return bytes.ReplaceAll(content, []byte(file.HeaderKey), []byte("LOCKD"))
}

// Ensure that Recover of a sound file has the rows that an Open has, and says nothing of them,
// however far the log and its checkpoint are; and that without the header, which says how much of
// the log counts, it loses no row, and says of each one whether it may be out of date.
func TestRecover_LogAtAnyTime(t *testing.T) {
	path := newPath(t)
	logged, doubtful := 0, 0
	for i, image := range images(t, 60, func(s *store.Store, round int) {
		for i := range 60 {
			n := i*7 + round*60
			key, gone := fmt.Sprintf("user/%03d", n%211), fmt.Sprintf("user/%03d", (n+100)%211)
			s.Keys.Put(key, schema.Key{Key: key, Value: fmt.Appendf(nil, "%080d", round),
				ModifyIndex: s.Next()})
			if s.Keys.Newest(gone) != nil {
				s.Keys.Delete(gone)
			}
		}
	}, nil) {
		found := recoverContent(t, path, image.content)
		if text := keysText(found); text != image.state.rows || found.Index != image.state.index {
			t.Errorf("commit %d: got %d keys, index %d, want index %d", i, len(found.Keys),
				found.Index, image.state.index)
		}
		if len(found.Missing)+len(found.Doubtful) != 0 {
			t.Errorf("commit %d: missing %+v, doubtful %+v", i, found.Missing, found.Doubtful)
		}
		if image.records == 0 {
			continue
		}
		logged++
		current := make(map[string]uint64)
		for _, row := range found.Keys {
			current[row.Key] = row.ModifyIndex
		}
		found = recoverContent(t, path, withoutHeader(image.content))
		for _, row := range found.Keys {
			last, there := current[row.Key]
			delete(current, row.Key)
			of := told(found.Doubtful, "keys", row.Key, "it is of the log, and the header is ")
			if of {
				doubtful++
			}
			if !of && (!there || row.ModifyIndex != last) || there && row.ModifyIndex < last {
				t.Errorf("commit %d: %s is of index %d, not %d", i, row.Key, row.ModifyIndex, last)
			}
		}
		if len(current) > 0 {
			t.Errorf("commit %d: %d keys are not there", i, len(current))
		}
	}
	if logged < 20 || doubtful == 0 {
		t.Errorf("%d commits were in the log, %d rows doubtful", logged, doubtful)
	}
}

// Ensure that a row that a checkpoint has moved to its table stays as it is when a record of the
// log is damaged that had it too: an older record neither replaces nor deletes it; and that the row
// is sure also if the header is missing.
func TestRecover_OlderRecordThanTheTable(t *testing.T) {
	path, tried := newPath(t), 0
	recovered := func(content []byte) (indexes map[string]uint64, doubtful []file.Remark) {
		t.Helper()
		found := recoverContent(t, path, content)
		indexes = make(map[string]uint64)
		for _, row := range found.Keys {
			indexes[row.Key] = row.ModifyIndex
		}
		return indexes, found.Doubtful
	}
	for _, image := range images(t, 40, func(s *store.Store, round int) {
		for i := range 48 { // each is written, or deleted, twice in a short time
			key := fmt.Sprintf("user/%03d", i)
			switch phase := (round + i) % 12; {
			case i%2 == 0 && phase == 0 && s.Keys.Newest(key) != nil:
				s.Keys.Delete(key)
			case phase == 0 || phase == 3:
				s.Keys.Put(key, schema.Key{Key: key, Value: make([]byte, 90),
					ModifyIndex: s.Next()})
			}
		}
	}, nil) {
		whole, _ := recovered(image.content)
		state := readLog(t, path)
		if state.Taken == 0 {
			continue
		}
		var moved []string // in the version that is in the file's table
		inBolt(t, path, nil, func(tx *bbolt.Tx) error {
			return tx.Bucket([]byte(format.TableName(0))).ForEach(func(key, value []byte) error {
				index, err := format.Changed(0, string(key), value)
				if index == whole[string(key)] {
					moved = append(moved, string(key))
				}
				return err
			})
		})
		for at := 2 * os.Getpagesize(); at < len(image.content); at += 512 {
			number := binary.BigEndian.Uint64(image.content[at+8:])
			if number < state.First || number >= state.Next {
				continue // it is not a sector of a record that counts
			}
			tried++
			content := bytes.Clone(image.content)
			content[at+100] ^= 1
			got, _ := recovered(content)
			for _, key := range moved {
				if got[key] != whole[key] {
					t.Errorf("without record %d: %s is of index %d, and its table has %d", number,
						key, got[key], whole[key])
				}
			}
		}
		_, doubtful := recovered(withoutHeader(image.content))
		for _, key := range moved {
			if told(doubtful, "keys", key, "") {
				t.Errorf("without the header, %s of the table is doubtful", key)
			}
		}
	}
	t.Logf("%d sectors", tried)
	if tried < 20 {
		t.Errorf("%d sectors were damaged", tried)
	}
}
