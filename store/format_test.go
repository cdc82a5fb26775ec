package store_test

import (
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lockd/lockd/store"
)

var update = flag.Bool("update", false, "write the files in testdata anew")

// formatFile is a file of the first format, and loggedFile one of the second. Nobody changes them:
// every later version must open them.
const (
	formatFile = "testdata/format1.db"
	loggedFile = "testdata/format2.db"
)

// formatRows puts what formatFile has, in two transactions.
func formatRows(s *store.Store, write func(fn func())) {
	id := store.ID{0xde, 0xad, 15: 0xef}
	write(func() {
		s.Keys.Put("gone", store.Key{Key: "gone", CreateIndex: 2, ModifyIndex: 2})
		s.Nodes.Put("n", store.Node{Name: "N", ID: "id", Address: "::1",
			Meta: map[string]string{"a": "1", "b": "2"}, CreateIndex: 2, ModifyIndex: 2})
		s.Services.Put("n\x00web", store.Service{Node: "N", ID: "web", Name: "Web",
			Address: "::1", Port: 80, Tags: []string{"z", "a"},
			Meta: map[string]string{"k": "v"}, CreateIndex: 2, ModifyIndex: 2})
		s.Checks.Put("n\x00up", store.Check{Node: "N", ID: "up", Name: "Up", Notes: "notes",
			Output: "output", ServiceID: "web", Status: 2, CreateIndex: 2, ModifyIndex: 2})
		s.Marks.Put("catalog", store.Mark{Name: "catalog", Index: 2})
	})
	write(func() {
		s.Keys.Delete("gone")
		s.Bury(0, "gone")
		s.Keys.Put("k", store.Key{Key: "k", Value: []byte("v"), Flags: 300, Session: id,
			CreateIndex: 3, ModifyIndex: 3, LockIndex: 1, Fence: 3})
		s.Keys.Put("large", store.Key{Key: "large", Value: make([]byte, 10_000),
			CreateIndex: 3, ModifyIndex: 3})
		s.Sessions.Put(string(id[:]), store.Session{ID: id, Name: "s", Node: "N",
			TTL: 10 * time.Second, Grace: time.Second, LockDelay: 15 * time.Second,
			Behavior: 1, Lifetime: 1, Checks: []string{"up"}, CreateIndex: 3})
		s.Attachments.Put("a", store.Attachment{Name: "a", Session: id, Value: []byte("v"),
			CreateIndex: 3, ModifyIndex: 3})
		s.Delays.Put("delayed", store.Delay{Key: "delayed", Until: time.Unix(1, 5).UTC(),
			Length: 15 * time.Second})
		s.Marks.Put("sessions", store.Mark{Name: "sessions", Index: 3})
	})
}

// Ensure that a file of the first format is opened, with all that it has, and can be written to.
func TestFormat1(t *testing.T) {
	testFormat(t, formatFile, formatRows)
}

// testFormat opens the file, which has these rows, and writes to it.
func testFormat(t *testing.T, file string, rows func(s *store.Store, write func(fn func()))) {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("bbolt's files are as the machine is that wrote them")
	}
	if *update {
		writeFile(t, file, rows)
	}
	path := copyOf(t, file)
	before := stateOf(t, path).bytes
	memory := store.New()
	rows(memory, func(fn func()) {
		fn()
		memory.Seal()
		memory.PublishMemory()
	})
	want := dump(memory)
	if got, err := openStore(path); err != nil || got != want {
		t.Fatalf("got %v,\n%d %q, want\n%d %q", err, got.index, got.rows, want.index, want.rows)
	}
	if stateOf(t, path).bytes != before {
		t.Error("the file was written to")
	}
	changed := commitTo(t, path, 0)
	if got, err := openStore(path); err != nil || got != changed {
		t.Errorf("after a commit: got index %d, %v, want %d", got.index, err, changed.index)
	}
}

// writeFile makes the file anew.
func writeFile(t *testing.T, file string, rows func(s *store.Store, write func(fn func()))) {
	t.Helper()
	path := newPath(t)
	s := store.New()
	if err := s.Open(path, store.Options{}); err != nil {
		t.Fatal(err)
	}
	rows(s, func(fn func()) {
		if err := write(s, fn); err != nil {
			t.Fatal(err)
		}
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(stateOf(t, path).bytes), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Ensure that README.md is right: a file is read by what it says, and by nothing of the package.
func TestFormat1_ByHand(t *testing.T) {
	path := firstFile(t)
	id := "\xde\xad" + string(make([]byte, 13)) + "\xef"
	type row struct {
		table   byte
		bucket  string
		key     string
		payload string
	}
	rows := []row{
		{0, "keys", "k", "\x01v" + "\xac\x02" + "\x01" + id + "\x03\x03\x01\x03"},
		{0, "keys", "large", "\x90\x4e" + string(make([]byte, 10_000)) + "\x00" + "\x00" +
			"\x03\x03\x00\x00"},
		{1, "sessions", id, "\x01s\x01N" + "\x80\x90\xdf\xc0\x4a" + "\x80\xa8\xd6\xb9\x07" +
			"\x80\xd8\x8e\xe1\x6f" + "\x01\x01" + "\x01\x02up" + "\x03"},
		{2, "nodes", "n", "\x01N\x02id\x03::1" + "\x02\x01a\x011\x01b\x012" + "\x02\x02"},
		{3, "services", "n\x00web", "\x01N\x03web\x03Web\x03::1" + "\xa0\x01" +
			"\x02\x01z\x01a" + "\x01\x01k\x01v" + "\x02\x02"},
		{4, "checks", "n\x00up", "\x01N\x02up\x02Up\x05notes\x06output\x03web" + "\x02" +
			"\x02\x02"},
		{5, "attachments", "a", "\x01" + id + "\x01v" + "\x03\x03"},
		{6, "delays", "delayed", "\x02\x05" + "\x80\xd8\x8e\xe1\x6f"},
		{7, "graves", "\x00gone", "\x03"},
		{8, "marks", "catalog", "\x02"},
		{8, "marks", "sessions", "\x03"},
	}
	sums := uint64(0)
	for _, row := range rows {
		sums += uint64(rowSum(row.table, row.key, row.payload))
	}
	// Two commits follow the one that made the tables, which is number 2.
	header := binary.AppendUvarint([]byte("\x01\x04\x03\x0b"), sums)
	rows = append(rows, row{255, "meta", "lockd", string(header)})
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		for _, row := range rows {
			bucket := tx.Bucket([]byte(row.bucket))
			if bucket == nil {
				t.Fatalf("there is no bucket %s", row.bucket)
			}
			sum := rowSum(row.table, row.key, row.payload)
			want := row.payload + string(binary.BigEndian.AppendUint32(nil, sum))
			if got := string(bucket.Get([]byte(row.key))); got != want {
				t.Errorf("%s %q is\n%x, want\n%x", row.bucket, row.key, got, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// loggedRows puts what loggedFile has, in two transactions, of which the second is in its log.
func loggedRows(s *store.Store, write func(fn func())) {
	write(func() {
		for i := range 100 {
			key := fmt.Sprintf("lock/%02d", i)
			s.Keys.Put(key, store.Key{Key: key, CreateIndex: 2, ModifyIndex: 2})
		}
	})
	write(func() {
		for i := range 5 {
			key := fmt.Sprintf("lock/%02d", i*20)
			s.Keys.Put(key, store.Key{Key: key, Value: []byte{'a' + byte(i)}, Flags: 300,
				CreateIndex: 2, ModifyIndex: 3})
		}
		s.Keys.Delete("lock/99")
	})
}

// Ensure that a file of the second format is opened, with all that it has, and can be written to.
func TestFormat2(t *testing.T) {
	testFormat(t, loggedFile, loggedRows)
}

// Ensure that README.md is right about the log.
func TestFormat2_ByHand(t *testing.T) {
	payload := ""
	for i := range 5 {
		key := fmt.Sprintf("lock/%02d", i*20)
		value := "\x01" + string(rune('a'+i)) + "\xac\x02" + "\x00" + "\x02\x03\x00\x00"
		value += string(binary.BigEndian.AppendUint32(nil, rowSum(0, key, value)))
		payload += "\x07" + key + "\x0d" + value
	}
	payload += "\x07lock/99" + "\x00"
	// Two commits follow the one that made the tables, which is number 2.
	number := "\x00\x00\x00\x00\x00\x00\x00\x04"
	want := payload + string(binary.BigEndian.AppendUint32(nil, rowSum(254, number, payload)))
	if log := records(t, copyOf(t, loggedFile)); len(log) != 1 || log[number] != want {
		t.Errorf("got %x, want %x: %x", log, number, want)
	}
}

// rowSum is the checksum of a row. The CRC is taken as if the message before it had ended in this
// state.
func rowSum(table byte, key, payload string) uint32 {
	start := uint32(table)<<24 ^ uint32(len(key))
	return crc32.Update(start, crc32.MakeTable(crc32.Castagnoli), []byte(key+payload))
}

// Ensure that README.md is right about backups too.
func TestBackup_ByHand(t *testing.T) {
	s := store.New()
	s.Keys.Put("k", store.Key{Key: "k", Value: []byte("v"), ModifyIndex: 2})
	s.Marks.Put("m", store.Mark{Name: "m", Index: 2}) // is not in a backup
	s.Seal()
	s.PublishMemory()
	payload := "\x01v" + "\x00\x00\x00\x02\x00\x00"
	sum := crc32.Update(0<<24^1, crc32.MakeTable(crc32.Castagnoli), []byte("k"+payload))
	value := string(binary.BigEndian.AppendUint32([]byte(payload), sum))
	want := "lockd backup\x01" + "\x02" + "\x00\x01k\x0c" + value + "\xff\x01"
	seal := sha256.Sum256([]byte(want))
	want += string(seal[:])
	if got := string(backupOf(t, s)); got != want {
		t.Errorf("got\n%x, want\n%x", got, want)
	}
	backup, err := store.ReadBackup(strings.NewReader(want))
	if err != nil || backup.Index != 2 || len(backup.Keys) != 1 || backup.Keys[0].Key != "k" {
		t.Errorf("it is read as %+v, %v", backup, err)
	}
}
