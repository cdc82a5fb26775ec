package table_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/format"
)

// fileRow is a row as a file has it, and where it lies.
type fileRow struct {
	place string
	value []byte
}

func inFile[T any](codec *format.Rows[T], key string, row T) fileRow {
	place := codec.Place(key, &row)
	return fileRow{place, codec.Append(nil, place, &row)}
}

// given gives a store the rows of a table, as a file with many pages does.
func given(rows interface {
	Rows(table byte, c *format.Chunk)
}, table byte, all ...fileRow) {
	for page := range slices.Chunk(all, 3) {
		var c format.Chunk
		for _, row := range page {
			c.Add([]byte(row.place), row.value)
		}
		rows.Rows(table, &c)
	}
}

// tallyOf returns the tally of the rows.
func tallyOf(all ...fileRow) (tally format.Tally) {
	for _, row := range all {
		tally.Add(format.StoredChecksum(row.value))
	}
	return tally
}

// Ensure that only the rows of the last reading are there when a file is read again, because
// another process wrote to it meanwhile: whether the reading before came to its end or not. And
// that the functions that were given to OnMove see each of them, once.
func TestLoading_ReadsAgain(t *testing.T) {
	var before, keys, delays []fileRow
	holder := schema.ID{1}
	for i := range 300 { // so many that some are verified beside the reading
		key := fmt.Sprintf("before/%03d", i)
		before = append(before, inFile(&format.KeyRows, key, schema.Key{Key: key, Session: holder}))
	}
	for i := range 7 {
		key := fmt.Sprintf("key/%d", i)
		row := schema.Key{Key: key, ModifyIndex: 9}
		if i == 3 {
			row.Session = holder
		}
		keys = append(keys, inFile(&format.KeyRows, key, row))
		delay := schema.Delay{Key: key, Index: uint64(20 - i)}
		delays = append([]fileRow{inFile(&format.DelayRows, key, delay)}, delays...)
	}
	for _, ended := range []bool{false, true} {
		s := store.New()
		var seen []string
		s.Keys.OnMove(func(old, new *schema.Key) {
			if old != nil || new == nil {
				t.Errorf("it moves from %v to %v", old, new)
				return
			}
			seen = append(seen, new.Key)
		})
		rows := s.Load()
		rows.Begin(40, tallyOf(before...))
		given(rows, format.KeyRows.Table, before...)
		given(rows, format.DelayRows.Table, delays[0])
		if ended {
			if err := rows.End(); err == nil || !strings.Contains(err.Error(), "lost a write") {
				t.Errorf("with a row more: got %v", err)
			}
		}
		rows.Begin(50, tallyOf(append(keys, delays...)...))
		given(rows, format.KeyRows.Table, keys...)
		given(rows, format.DelayRows.Table, delays...)
		if err := rows.End(); err != nil {
			t.Fatal(err)
		}
		rows.Publish()
		if err := s.Check(); err != nil {
			t.Error(err)
		}
		if s.Keys.Len() != 7 || s.Delays.Len() != 7 || s.Index() != 50 || s.Published() != 50 {
			t.Errorf("%d keys, %d delays, index %d, published %d", s.Keys.Len(), s.Delays.Len(),
				s.Index(), s.Published())
		}
		var got []string
		for key := range s.Snapshot().Keys.Ascend("") {
			got = append(got, key)
		}
		if len(got) != 7 || !slices.Equal(got, seen) || s.Keys.Get("before/000") != nil ||
			s.Keys.Newest("before/001") != nil {
			t.Errorf("there are %q, and %q have moved", got, seen)
		}
		if locked := s.Locked(); len(locked) != 1 || locked[0].Key != "key/3" {
			t.Errorf("%d keys are locked", len(locked))
		}
		if s.Delays.Get("key/6").Index != 14 || s.Delays.Newest("key/0").Index != 20 {
			t.Error("a delay is not that of its key")
		}
	}
}

// Ensure that a row that lies in two places, or in a place that is not its own, is refused.
func TestLoading_RowsInWrongPlaces(t *testing.T) {
	first := inFile(&format.DelayRows, "a", schema.Delay{Key: "a", Index: 5})
	second := inFile(&format.DelayRows, "a", schema.Delay{Key: "a", Index: 6})
	other := format.DelayRows.Place("a", &schema.Delay{Index: 7})
	moved := schema.Delay{Key: "a", Index: 8}
	astray := fileRow{other, format.DelayRows.Append(nil, other, &moved)}
	for text, all := range map[string][]fileRow{
		"it is there twice":     {first, second},
		"it is not where a row": {astray},
	} {
		s := store.New()
		rows := s.Load()
		rows.Begin(9, tallyOf(all...))
		given(rows, format.DelayRows.Table, all...)
		err := rows.End()
		if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want ErrCorrupt with %q", err, text)
		}
		rows.Discard()
	}
}

// Ensure that a row of an unknown form is refused, although its checksum is right (G13).
func TestLoading_G13_RowOfUnknownForm(t *testing.T) {
	const key = "node"
	payload := format.NodeRows.AppendPayload(nil, &schema.Node{Name: key})
	payload = append(payload, 0) // a field that this program does not know
	sum := format.Checksum(format.NodeRows.Table, []byte(key), payload)
	row := fileRow{key, binary.BigEndian.AppendUint32(payload, sum)}

	rows := store.New().Load()
	defer rows.Discard()
	rows.Begin(9, tallyOf(row))
	given(rows, format.NodeRows.Table, row)
	err := rows.End()
	if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), `"node" of nodes`) {
		t.Errorf("got %v, want ErrCorrupt with the row", err)
	}
}

// Ensure that a transaction that was taken back has written nothing and uses no index, that nothing
// is pending when all is published, and that a snapshot is made once.
func TestState_LeavesNothingBehind(t *testing.T) {
	s := store.New()
	s.Marks.Put("m", schema.Mark{Name: "m"})
	s.Undo()
	before := s.Index()
	if s.Seal(); s.Wrote() || s.Pending() || s.Index() != before {
		t.Errorf("undone: wrote %v, pending %v, index %d", s.Wrote(), s.Pending(), s.Index())
	}
	s.Marks.Put("m", schema.Mark{Name: "m"})
	s.Seal()
	if s.Wrote() || !s.Pending() {
		t.Errorf("sealed: wrote %v, pending %v", s.Wrote(), s.Pending())
	}
	s.PublishMemory()
	if s.Pending() {
		t.Error("all is published, and something is pending")
	}
	if made := s.Snapshot(); s.Cached() != made || s.Snapshot() != made {
		t.Error("the snapshot is not kept")
	}
}

// Ensure that a snapshot gives a file its rows in the order of the file, also the rows that do not
// lie under their keys.
func TestSnapshot_WritesAreInOrder(t *testing.T) {
	s := store.New()
	for i := range 40 {
		key := fmt.Sprintf("%02d", i*7%40)
		s.Keys.Put(key, schema.Key{Key: key})
		s.Delays.Put(key, schema.Delay{Key: key, Index: uint64(i)})
	}
	s.Seal()
	s.PublishMemory()
	rows := slices.Collect(s.Snapshot().Writes())
	if len(rows) != 80 {
		t.Errorf("%d rows", len(rows))
	}
	for i := range rows[1:] {
		if !rows[i].Before(rows[i+1]) {
			t.Errorf("row %q of table %d is before row %q of table %d", rows[i].Key, rows[i].Table,
				rows[i+1].Key, rows[i+1].Table)
		}
	}
}
