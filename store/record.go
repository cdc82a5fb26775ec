package store

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/lockd/lockd/internal/schema"
	berrors "go.etcd.io/bbolt/errors"
)

// A record's payload says what its commit left, and has the rows that it wrote, one behind the
// other, in the order of their tables and places:
//
//	last index | number of all rows | sum of their checksums
//	number of the table | length and bytes of the place | length and bytes of the value
//
// The value is empty if the row was deleted. The table is a byte, all else a varint or bytes.

// leastRow is how many bytes any row takes in a file, at least.
const leastRow = 8

// recordSize is as much as the payload takes, or a little more.
func recordSize(rows []rowWrite) int {
	size := 3 * binary.MaxVarintLen64
	for _, row := range rows {
		size += 1 + 2*binary.MaxVarintLen32 + len(row.key) + len(row.value)
	}
	return size
}

// makeRecord returns the payload of a record, for which it takes that much memory, and in which the
// values of the rows are from then on. Rows that bbolt would refuse are refused here: the
// checkpoint must not be the first to find out.
func makeRecord(rows []rowWrite, last header, size int) (payload []byte, err error) {
	payload = make([]byte, 0, size)
	payload = binary.AppendUvarint(payload, last.index)
	payload = binary.AppendUvarint(payload, last.tally.rows)
	payload = binary.AppendUvarint(payload, last.tally.sum)
	for i, row := range rows {
		switch {
		case len(row.key) == 0:
			return nil, errRow(row, berrors.ErrKeyRequired)
		case len(row.key) > schema.KeyLimit:
			return nil, errRow(row, berrors.ErrKeyTooLarge)
		case i > 0 && !rows[i-1].before(row):
			return nil, errRow(row, errSorted)
		}
		payload = appendBytes(appendString(append(payload, row.table), row.key), row.value)
		if row.value != nil {
			end := len(payload)
			rows[i].value = payload[end-len(row.value) : end : end]
		}
	}
	return payload, nil
}

// What is found wrong with a record.
var (
	errTable  = errors.New("it has a row of an unknown table")
	errSorted = errors.New("its rows are not in order")
	errIndex  = errors.New("its last index is not between those of its neighbours")
)

// readRecord returns what the commit left, and the rows that it wrote, in the payload's memory.
func readRecord(payload []byte) (last header, rows []rowWrite, err error) {
	d := decoder{rest: payload}
	last.index = d.uint64()
	last.tally = tally{rows: d.uint64(), sum: d.uint64()}
	for d.err == nil && len(d.rest) > 0 {
		row := rowWrite{table: d.uint8(), key: d.string(), value: d.bytes()}
		switch {
		case d.err != nil:
		case row.table >= tableCount:
			d.fail(errTable)
		case len(row.key) == 0 || len(row.key) > schema.KeyLimit:
			d.fail(errKeyLength)
		case len(rows) > 0 && !rows[len(rows)-1].before(row):
			d.fail(errSorted)
		default:
			rows = append(rows, row)
		}
	}
	return last, rows, d.end()
}

// recordError says of what record the error is.
func recordError(number uint64, err error) error {
	return fmt.Errorf("%w: record %d of its log: %w", ErrCorrupt, number, err)
}
