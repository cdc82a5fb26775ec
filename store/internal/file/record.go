package file

import (
	"encoding/binary"
	"errors"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store/internal/format"
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

// recordSize is how many bytes the payload takes, or a little more.
func recordSize(rows []format.Write) int {
	size := 3 * binary.MaxVarintLen64
	for _, row := range rows {
		size += 1 + 2*binary.MaxVarintLen32 + len(row.Key) + len(row.Value)
	}
	return size
}

// makeRecord returns the payload of a record, in memory of that size. From then on the values of
// the rows are in the payload. Rows that bbolt would refuse are refused here, because the
// checkpoint would find out too late.
func makeRecord(rows []format.Write, last header, size int) (payload []byte, err error) {
	payload = make([]byte, 0, size)
	payload = format.AppendUint64(payload, last.index, last.tally.Rows, last.tally.Sum)
	for i, row := range rows {
		switch {
		case len(row.Key) == 0:
			return nil, errRow(row, berrors.ErrKeyRequired)
		case len(row.Key) > schema.KeyLimit:
			return nil, errRow(row, berrors.ErrKeyTooLarge)
		case i > 0 && !rows[i-1].Before(row):
			return nil, errRow(row, errSorted)
		}
		payload = format.AppendBytes(format.AppendString(append(payload, row.Table), row.Key),
			row.Value)
		if row.Value != nil {
			end := len(payload)
			rows[i].Value = payload[end-len(row.Value) : end : end]
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
func readRecord(payload []byte) (last header, rows []format.Write, err error) {
	d := format.Decoder{Rest: payload}
	last.index = d.Uint64()
	last.tally = format.Tally{Rows: d.Uint64(), Sum: d.Uint64()}
	for d.Err == nil && len(d.Rest) > 0 {
		row := format.Write{Table: d.Uint8(), Key: d.String(), Value: d.Bytes()}
		switch {
		case d.Err != nil:
		case row.Table >= format.TableCount:
			d.Fail(errTable)
		case len(row.Key) == 0 || len(row.Key) > schema.KeyLimit:
			d.Fail(format.ErrKeyLength)
		case len(rows) > 0 && !rows[len(rows)-1].Before(row):
			d.Fail(errSorted)
		default:
			rows = append(rows, row)
		}
	}
	return last, rows, d.End()
}
