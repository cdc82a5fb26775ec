package file_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"go.etcd.io/bbolt"
)

var update = flag.Bool("update", false, "write the files in testdata anew")

// formatFile is a file without a log, and loggedFile one that has a log. They stay as they are:
// every later version must open them.
const (
	formatFile = "testdata/format.db"
	loggedFile = "testdata/logged.db"
)

// formatRows puts what formatFile has, in two transactions.
func formatRows(s *store.Store, write func(fn func())) {
	id := schema.ID{0xde, 0xad, 15: 0xef}
	write(func() {
		s.Keys.Put("gone", schema.Key{Key: "gone", CreateIndex: 2, ModifyIndex: 2})
		s.Nodes.Put("n", schema.Node{Name: "N", ID: "id", Address: "::1",
			Meta: map[string]string{"a": "1", "b": "2"}, CreateIndex: 2, ModifyIndex: 2})
		s.Services.Put("n\x00web", schema.Service{Node: "N", ID: "web", Name: "Web",
			Address: "::1", Port: 80, Tags: []string{"z", "a"},
			Meta: map[string]string{"k": "v"}, CreateIndex: 2, ModifyIndex: 2})
		s.Checks.Put("n\x00up", schema.Check{Node: "N", ID: "up", Name: "Up", Notes: "notes",
			Output: "output", ServiceID: "web", Status: 2, CreateIndex: 2, ModifyIndex: 2})
		s.Marks.Put("catalog", schema.Mark{Name: "catalog", Index: 2})
	})
	write(func() {
		s.Keys.Delete("gone")
		s.Bury(0, "gone")
		s.Keys.Put("k", schema.Key{Key: "k", Value: []byte("v"), Flags: 300, Session: id,
			CreateIndex: 3, ModifyIndex: 3, LockIndex: 1, Fence: 3})
		s.Keys.Put("large", schema.Key{Key: "large", Value: make([]byte, 10_000),
			CreateIndex: 3, ModifyIndex: 3})
		s.Sessions.Put(string(id[:]), schema.Session{ID: id, Name: "s", Node: "N",
			TTL: 10 * time.Second, Grace: time.Second, LockDelay: 15 * time.Second,
			Behavior: 1, Lifetime: 1, Checks: []string{"up"}, CreateIndex: 3})
		s.Attachments.Put("a", schema.Attachment{Name: "a", Session: id, Value: []byte("v"),
			CreateIndex: 3, ModifyIndex: 3})
		s.Delays.Put("delayed", schema.Delay{Key: "delayed", Until: time.Unix(1, 5).UTC(),
			Length: 15 * time.Second, Index: 3})
		s.Delays.Put("large", schema.Delay{Key: "large", Until: time.Unix(2, 0).UTC(),
			Length: time.Second, Index: 3, Mode: 1})
		share := schema.ShareKey("large", 3, id)
		s.Shares.Put(share, schema.Share{Row: share, LockIndex: 1})
		s.Marks.Put("sessions", schema.Mark{Name: "sessions", Index: 3})
	})
}

// Ensure that a file without a log is opened, with all that it has, and can be written to.
func TestFormat(t *testing.T) {
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

// Ensure that README.md is right: a file is read by its text alone, without the package.
func TestFormat_ByHand(t *testing.T) {
	path := copyOf(t, formatFile)
	id, index := "\xde\xad"+string(make([]byte, 13))+"\xef", string(make([]byte, 7))+"\x03"
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
		{1, "sessions", index + id, "\x01s\x01N" + "\x80\x90\xdf\xc0\x4a" + "\x80\xa8\xd6\xb9\x07" +
			"\x80\xd8\x8e\xe1\x6f" + "\x01\x01" + "\x01\x02up" + "\x03"},
		{2, "nodes", "n", "\x01N\x02id\x03::1" + "\x02\x01a\x011\x01b\x012" + "\x02\x02"},
		{3, "services", "n\x00web", "\x01N\x03web\x03Web\x03::1" + "\xa0\x01" +
			"\x02\x01z\x01a" + "\x01\x01k\x01v" + "\x02\x02"},
		{4, "checks", "n\x00up", "\x01N\x02up\x02Up\x05notes\x06output\x03web" + "\x02" +
			"\x02\x02"},
		{5, "attachments", "a", "\x01" + id + "\x01v" + "\x03\x03"},
		{6, "delays", "\xff" + index + "delayed", "\x02\x05" + "\x80\xd8\x8e\xe1\x6f" + "\x03"},
		{6, "delays", "\xff" + index + "large", "\x04\x00" + "\x80\xa8\xd6\xb9\x07" + "\x03\x01"},
		{7, "graves", "\xff" + index + "\x00gone", "\x03"},
		{8, "marks", "catalog", "\x02"},
		{8, "marks", "sessions", "\x03"},
		{9, "shares", "\xff" + index + "\x00\x05large" + index + id, "\x01"},
	}
	sums := uint64(0)
	for _, row := range rows {
		sums += uint64(rowSum(row.table, row.key, row.payload))
	}
	// Two commits follow the one that made the tables, number 2.
	header := binary.AppendUvarint([]byte("\x01\x04\x03\x0d"), sums)
	rows = append(rows, row{255, "meta", "lockd", string(header) + "\x00\x00\x00\x00\x00"})
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

// loggedRows puts what loggedFile has: the last two commits are in its log.
func loggedRows(s *store.Store, write func(fn func())) {
	put := func(key, value string) {
		s.Keys.Put(key, schema.Key{Key: key, Value: []byte(value), Flags: 300, CreateIndex: 2,
			ModifyIndex: s.Next()})
	}
	for i := range 5 {
		write(func() { put(fmt.Sprintf("lock/%d", i), "first") })
	}
	write(func() {
		put("lock/2", "second")
		s.Keys.Delete("lock/3")
		s.Marks.Put("m", schema.Mark{Name: "m", Index: 7})
	})
	write(func() { put("large", strings.Repeat("x", 600)) })
}

// Ensure that a file with a log is opened, with all that it has, and can be written to.
func TestFormat_Log(t *testing.T) {
	testFormat(t, loggedFile, loggedRows)
}

// Ensure that README.md is right about the log.
func TestFormat_LogByHand(t *testing.T) {
	row := func(table byte, key, payload string) string {
		value := payload + string(binary.BigEndian.AppendUint32(nil, rowSum(table, key, payload)))
		text := string(binary.AppendUvarint([]byte{table}, uint64(len(key)))) + key
		return text + string(binary.AppendUvarint(nil, uint64(len(value)))) + value
	}
	head := func(index, rows uint64, sums ...uint32) string {
		sum := uint64(0)
		for _, s := range sums {
			sum += uint64(s)
		}
		b := binary.AppendUvarint(binary.AppendUvarint(nil, index), rows)
		return string(binary.AppendUvarint(b, sum))
	}
	first := func(i byte) uint32 {
		payload := "\x05first\xac\x02\x00\x02" + string(i+2) + "\x00\x00"
		return rowSum(0, fmt.Sprintf("lock/%d", i), payload)
	}
	const second, mark = "\x06second\xac\x02\x00\x02\x07\x00\x00", "\x07"
	large := "\xd8\x04" + strings.Repeat("x", 600) + "\xac\x02\x00\x02\x08\x00\x00"
	sums := []uint32{
		first(0), first(1), first(4), rowSum(0, "lock/2", second), rowSum(8, "m", mark),
	}
	records := []string{
		head(7, 5, sums...) + row(0, "lock/2", second) + "\x00\x06lock/3\x00" + row(8, "m", mark),
		head(8, 6, append(sums, rowSum(0, "large", large))...) + row(0, "large", large),
	}

	path := copyOf(t, loggedFile)
	content := []byte(stateOf(t, path).bytes)
	var value, header []byte
	inBolt(t, path, nil, func(tx *bbolt.Tx) error {
		value = bytes.Clone(tx.Bucket([]byte("log0")).Get([]byte("log")))
		header = bytes.Clone(tx.Bucket([]byte("meta")).Get([]byte("lockd")))
		return errors.New("nothing is to be written")
	})
	// The log was made by bbolt's sixth commit, and another one followed.
	if log := header[len(header)-9 : len(header)-4]; string(log) != "\x06\x01\x01\x00\x00" {
		t.Errorf("the header ends with %x", log)
	}
	start := bytes.Index(content, value) - 35
	lane := (len(value) + 547) / 1024
	at := func(sector int) []byte { return content[start+sector*512 : start+(sector+1)*512] }
	check := func(sector int, number uint64, left int, part string) {
		t.Helper()
		b := binary.BigEndian.AppendUint32(nil, uint32(left))
		b = append(binary.BigEndian.AppendUint64(b, number), part...)
		b = append(b, make([]byte, 508-len(b))...)
		key := string(binary.BigEndian.AppendUint32([]byte{0}, uint32(sector)))
		want := append(binary.BigEndian.AppendUint32(nil, rowSum(254, key, string(b))), b...)
		if got := at(sector); !bytes.Equal(got, want) {
			t.Errorf("sector %d is\n%x, want\n%x", sector, got, want)
		}
	}
	check(lane, 1, len(records[0]), records[0])
	check(lane+1, 0, 0, "")
	check(1, 2, len(records[1]), records[1][:496])
	check(2, 2, len(records[1])-496, records[1][496:])
	check(3, 0, 0, "")
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
	s.Keys.Put("k", schema.Key{Key: "k", Value: []byte("v"), ModifyIndex: 2})
	s.Marks.Put("m", schema.Mark{Name: "m", Index: 2}) // is not in a backup
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

// Ensure that the bytes of a header stay the same as in the files that users have.
func TestHeader_BytesArePinned(t *testing.T) {
	got := hex.EncodeToString(file.HeaderValue(1, 9, 5))
	if want := "010905000000000000008c33a68e"; got != want {
		t.Errorf("it is\n%s, want\n%s", got, want)
	}
}
