package file_test

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"github.com/lockd/lockd/store/internal/format"
	"go.etcd.io/bbolt"
)

// headerWith is a header with these numbers, which are described in README.md of package store, and
// with a checksum that fits.
func headerWith(numbers [8]uint64, rest string) []byte {
	var payload []byte
	for _, n := range numbers {
		payload = binary.AppendUvarint(payload, n)
	}
	payload = append(payload, rest...)
	sum := format.Checksum(format.HeaderTable, []byte(file.HeaderKey), payload)
	return binary.BigEndian.AppendUint32(payload, sum)
}

// Ensure that a header is refused if it says what no commit leaves, though its checksum fits.
func TestHeader_Refused(t *testing.T) {
	const last = 1<<63 - 1 // the highest of all indexes, and of the numbers of records
	for _, test := range []struct {
		name    string
		numbers [8]uint64 // version, commit, index, rows, sum, made, first, next; of commit 0
		rest    string
		want    error
		text    string // "": it is accepted
	}{
		{"OK", [8]uint64{1, 0, 5}, "\x00\x00", nil, ""},
		{"LastIndex", [8]uint64{1, 0, last}, "\x00\x00", nil, ""},
		{"Version", [8]uint64{2, 0, 5}, "", store.ErrFormat, "it has version 2"},
		{"Short", [8]uint64{1, 0, 5}, "\x00", store.ErrCorrupt, format.ErrShort.Error()},
		{"Long", [8]uint64{1, 0, 5}, "\x00\x00\x00", store.ErrCorrupt, "goes on after its end"},
		{"Commit", [8]uint64{1, 1, 5}, "\x00\x00", store.ErrCorrupt, "its header is of commit"},
		{"NoIndex", [8]uint64{1, 0, 0}, "\x00\x00", store.ErrCorrupt, "its last index is 0"},
		{"Index", [8]uint64{1, 0, last + 1}, "\x00\x00", store.ErrCorrupt, "its last index is"},
		{"Rows", [8]uint64{1, 0, 5, 1 << 40}, "\x00\x00", store.ErrCorrupt, "its last commit left"},
		{"LogBackwards", [8]uint64{1, 0, 5, 0, 0, 1, 9, 8}, "\x00\x00", store.ErrCorrupt,
			"its log is from record 9 to before 8"},
		{"LogTooLong", [8]uint64{1, 0, 5, 0, 0, 1, 9, last + 1}, "\x00\x00", store.ErrCorrupt,
			"its log is from record 9 to before"},
		{"LogWithoutSegments", [8]uint64{1, 0, 5, 0, 0, 0, 9, 9}, "\x00\x00", store.ErrCorrupt,
			"its log is from record 9 to before 9"},
		{"SegmentsWithoutLog", [8]uint64{1, 0, 5, 0, 0, 1, 0, 0}, "\x00\x00", store.ErrCorrupt,
			"its log is from record 0 to before 0"},
		{"NoSegments", [8]uint64{1, 0, 5, 0, 0, 1, 9, 9}, "\x00\x00", store.ErrCorrupt,
			"its header does not fit its log"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := newPath(t)
			inBolt(t, path, nil, func(tx *bbolt.Tx) error {
				if err := file.MakeTables(tx); err != nil {
					return err
				}
				test.numbers[1] += uint64(tx.ID())
				return putHeader(tx, headerWith(test.numbers, test.rest))
			})
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			_, err = openAndLoad(path)
			switch {
			case test.text == "" && err != nil:
				t.Errorf("got %v, want no error", err)
			case test.text == "":
			case !errors.Is(err, test.want), !strings.Contains(err.Error(), test.text):
				t.Errorf("got %v, want %v with %q", err, test.want, test.text)
			case string(contentOf(t, path)) != string(before):
				t.Error("the file was written to")
			}
		})
	}
}
