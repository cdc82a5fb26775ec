package file_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
)

const backupHead = "lockd backup\x01"

// sealedBackup returns the stream with the checksum that ends it.
func sealedBackup(pieces ...string) string {
	stream := strings.Join(pieces, "")
	sum := sha256.Sum256([]byte(stream))
	return stream + string(sum[:])
}

// backupRow returns a row of a backup, with a checksum that fits.
func backupRow[T any](codec *format.Rows[T], key string, row T) string {
	value := codec.Append(nil, key, &row)
	b := append([]byte{codec.Table}, fmt.Sprintf("%s%s", uvarint(uint64(len(key))), key)...)
	return string(append(b, uvarint(uint64(len(value)))+string(value)...))
}

func uvarint(n uint64) string { return string(binary.AppendUvarint(nil, n)) }

// Ensure that a backup is refused if anything in it is not as a writer of backups has it, also if
// the checksum of the whole fits; and that the error says what is wrong.
func TestReadBackup_Refuses(t *testing.T) {
	key := func(name string) string {
		return backupRow(&format.KeyRows, name, schema.Key{Key: name, ModifyIndex: 2})
	}
	damaged := func(row string) string { return row[:len(row)-1] + string(row[len(row)-1]^1) }
	node := backupRow(&format.NodeRows, "n", schema.Node{Name: "n"})
	service := backupRow(&format.ServiceRows, "n\x00s", schema.Service{Node: "n", ID: "s"})
	check := backupRow(&format.CheckRows, "n\x00c", schema.Check{Node: "n", ID: "c"})
	session := backupRow(&format.SessionRows, strings.Repeat("i", 16), schema.Session{})
	longest := strings.Repeat("k", schema.KeyLimit)
	index := uvarint(300) // of two bytes
	whole := sealedBackup(backupHead, index, key("a"), key("b"), node, service, check, "\xff\x05")
	for _, test := range []struct {
		name, stream string
		want         error
		text         string // "": it is accepted
	}{
		{"Whole", whole, nil, ""},
		{"Empty", sealedBackup(backupHead, "\x02\xff\x00"), nil, ""},
		{"FirstIndex", sealedBackup(backupHead, uvarint(schema.FirstIndex), "\xff\x00"), nil, ""},
		{"LastIndex", sealedBackup(backupHead, uvarint(1<<63-1), "\xff\x00"), nil, ""},
		{"LongestKey", sealedBackup(backupHead, "\x02", key(longest), "\xff\x01"), nil, ""},

		{"OtherFile", "lockd bakcup\x01", store.ErrFormat, "it is not a backup"},
		{"Version", "lockd backup\x02", store.ErrFormat, "it is of version 2"},
		{"IndexZero", sealedBackup(backupHead, "\x00\xff\x00"), store.ErrCorrupt, "index is 0"},
		{"IndexTooLarge", sealedBackup(backupHead, uvarint(1<<63), "\xff\x00"), store.ErrCorrupt,
			"index is 9223372036854775808"},
		{"IndexLongerThanNeeded", sealedBackup(backupHead, "\x82\x00\xff\x00"), store.ErrCorrupt,
			format.ErrNumber.Error()},
		{"IndexNoNumber", sealedBackup(backupHead, strings.Repeat("\xff", 10)),
			store.ErrCorrupt, format.ErrNumber.Error()},
		{"OutOfOrder", sealedBackup(backupHead, "\x02", key("b"), key("a"), "\xff\x02"),
			store.ErrCorrupt, `row "a" is not in its place`},
		{"Twice", sealedBackup(backupHead, "\x02", key("a"), key("a"), "\xff\x02"),
			store.ErrCorrupt, `row "a" is not in its place`},
		{"TablesOutOfOrder", sealedBackup(backupHead, "\x02", node, key("o"), "\xff\x02"),
			store.ErrCorrupt, `row "o" is not in its place`},
		{"OtherTable", sealedBackup(backupHead, "\x02", session, "\xff\x01"), store.ErrCorrupt,
			"is of the unknown table 1"},
		{"Key", sealedBackup(backupHead, "\x02", damaged(key("a")), "\xff\x01"),
			store.ErrCorrupt, `row "a" of keys: its checksum does not match`},
		{"Node", sealedBackup(backupHead, "\x02", damaged(node), "\xff\x01"),
			store.ErrCorrupt, `row "n" of nodes: its checksum does not match`},
		{"Service", sealedBackup(backupHead, "\x02", damaged(service), "\xff\x01"),
			store.ErrCorrupt, `row "n\x00s" of services: its checksum does not match`},
		{"Check", sealedBackup(backupHead, "\x02", damaged(check), "\xff\x01"),
			store.ErrCorrupt, `row "n\x00c" of checks: its checksum does not match`},
		{"KeyTooLong", sealedBackup(backupHead, "\x02", key(longest+"k"), "\xff\x01"),
			store.ErrCorrupt, "a length of 32769 is more than 32768"},
		{"ValueTooLong", sealedBackup(backupHead, "\x02\x00\x01k", uvarint(1<<30+1)),
			store.ErrCorrupt, "a length of 1073741825 is more than 1073741824"},
		{"FewerRows", sealedBackup(backupHead, "\x02", key("a"), "\xff\x02"),
			store.ErrCorrupt, "it has 1 rows, not 2"},
		{"MoreRows", sealedBackup(backupHead, "\x02", key("a"), "\xff\x00"),
			store.ErrCorrupt, "it has 1 rows, not 0"},
		{"Seal", damaged(whole), store.ErrCorrupt, "the checksum of the whole does not fit"},
		{"GoesOn", whole + "\x00", store.ErrCorrupt, "it goes on after its end"},
	} {
		t.Run(test.name, func(t *testing.T) {
			backup, err := store.ReadBackup(strings.NewReader(test.stream))
			switch {
			case test.text == "" && (err != nil || backup == nil):
				t.Errorf("got %v, want no error", err)
			case test.text == "":
			case backup != nil || !errors.Is(err, test.want),
				!strings.Contains(err.Error(), test.text):
				t.Errorf("got %v, want %v with %q", err, test.want, test.text)
			}
		})
	}
	for size := len(backupHead); size < len(whole); size++ {
		_, err := store.ReadBackup(strings.NewReader(whole[:size]))
		text := fmt.Sprintf("it is cut off after %d bytes", size)
		if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), text) {
			t.Errorf("cut off after %d bytes: got %v", size, err)
		}
	}
	for size := range len(whole) + 1 { // the reader fails, also where the stream should end
		reader := io.MultiReader(strings.NewReader(whole[:size]), iotest.ErrReader(errTest))
		if _, err := store.ReadBackup(reader); !errors.Is(err, errTest) {
			t.Errorf("the reader fails after %d bytes: got %v", size, err)
		}
	}
}

var errTest = errors.New("test")

// Ensure that the error of the writer is returned, wherever it comes, and that no row is asked for
// after it.
func TestWriteBackup_WriterFails(t *testing.T) {
	var w *shortWriter
	rows := func(yield func(format.Write) bool) {
		for i := range 200 {
			key := fmt.Sprintf("key/%03d", i)
			row := schema.Key{Key: key, Value: make([]byte, 100)}
			value := format.KeyRows.Append(nil, key, &row)
			if w != nil && w.failed > 0 {
				t.Errorf("row %d is asked for after an error", i)
			}
			if !yield(file.Write(format.KeyRows.Table, key, value)) {
				return
			}
		}
	}
	var whole bytes.Buffer
	if err := file.WriteBackup(&whole, 2, rows); err != nil {
		t.Fatal(err)
	}
	for room := 0; room < whole.Len(); room += 509 {
		w = &shortWriter{room: room}
		if err := file.WriteBackup(w, 2, rows); !errors.Is(err, errTest) || w.failed != 1 {
			t.Errorf("after %d bytes: got %v, and %d calls failed", room, err, w.failed)
		}
	}
}

// shortWriter fails once it has taken that many bytes.
type shortWriter struct{ room, failed int }

func (w *shortWriter) Write(b []byte) (int, error) {
	if len(b) > w.room {
		w.failed++
		return 0, errTest
	}
	w.room -= len(b)
	return len(b), nil
}
