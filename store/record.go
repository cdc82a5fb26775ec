package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/google/btree"
	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// A record's payload has one row behind the other, in the order of their keys:
//
//	length and bytes of the key | length and bytes of the value, none if the key was deleted
//
// A length is a varint. The record's key is the number of its commit.

// logTable stands for a table in the checksum.
const logTable byte = 0xfe

// leastRow is how many bytes any row takes in a file, at least.
const leastRow = 8

func recordKey(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

// recordSize is as much as the record of the rows takes, or a little more.
func recordSize(rows []rowWrite) int {
	size := checksumSize
	for _, row := range rows {
		size += 2*binary.MaxVarintLen32 + len(row.key) + len(row.value)
	}
	return size
}

// makeRecord returns the record of the rows, which takes that size at most, and the rows with their
// values in its memory.
func makeRecord(rows []rowWrite, number uint64, size int) ([]byte, []rowWrite, error) {
	record, logged := make([]byte, 0, size), slices.Clone(rows)
	for i, row := range rows {
		switch { // as bbolt does it: the checkpoint must not be the first to find out
		case len(row.key) == 0:
			return nil, nil, errRow(row, berrors.ErrKeyRequired)
		case len(row.key) > bbolt.MaxKeySize:
			return nil, nil, errRow(row, berrors.ErrKeyTooLarge)
		}
		record = appendBytes(appendString(record, row.key), row.value)
		if row.value != nil {
			end := len(record)
			logged[i].value = record[end-len(row.value) : end : end]
		}
	}
	sum := checksum(logTable, recordKey(number), record)
	return binary.BigEndian.AppendUint32(record, sum), logged, nil
}

// What is found wrong with a record.
var (
	errBucket = errors.New("it is a bucket")
	errFuture = errors.New("no commit has that number yet")
	errSorted = errors.New("its rows are not in the order of their keys")
)

// read takes one more record, of a file whose last commit has that number.
func (l *logged) read(e element, commit uint64) error {
	if err := l.tryRead(e, commit); err != nil {
		return fmt.Errorf("%w: record %.8x of the log: %w", ErrCorrupt, e.key, err)
	}
	return nil
}

func (l *logged) tryRead(e element, commit uint64) error {
	switch {
	case e.flags == bucketFlag:
		return errBucket
	case len(e.key) != numberSize:
		return errKeyLength
	}
	payload, err := verify(logTable, e.key, e.value)
	if err != nil {
		return err
	}
	number := binary.BigEndian.Uint64(e.key)
	if number > commit {
		return errFuture
	}
	d, last := decoder{rest: slices.Clone(payload)}, ""
	for len(d.rest) > 0 {
		row := rowWrite{table: tableKeys, key: d.string(), value: d.bytes()}
		switch {
		case d.err != nil:
			return d.err
		case len(row.key) == 0 || len(row.key) > bbolt.MaxKeySize:
			return errKeyLength
		case row.key <= last:
			return errSorted
		}
		last = row.key
		l.rows.ReplaceOrInsert(row)
	}
	l.records = append(l.records, number)
	l.size += len(e.value)
	return nil
}

// logged is the newest row of each key that some records have.
type logged struct {
	rows    *btree.BTreeG[rowWrite]
	records []uint64 // their numbers, in order
	size    int      // of all of them, in bytes
}

func newLogged() *logged {
	return &logged{rows: btree.NewG(treeDegree, func(a, b rowWrite) bool { return a.key < b.key })}
}

// empty reports whether there are no records.
func (l *logged) empty() bool { return len(l.records) == 0 }

// has reports whether there is a row of the key, or that it was deleted.
func (l *logged) has(key string) bool { return l.rows.Has(rowWrite{key: key}) }

// add puts rows in the place of those that were there.
func (l *logged) add(rows []rowWrite) {
	for _, row := range rows {
		l.rows.ReplaceOrInsert(row)
	}
}

// list returns the rows, in order.
func (l *logged) list() []rowWrite {
	rows := make([]rowWrite, 0, l.rows.Len())
	l.rows.Ascend(func(row rowWrite) bool {
		rows = append(rows, row)
		return true
	})
	return rows
}
