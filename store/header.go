package store

import (
	"encoding/binary"
	"fmt"

	"go.etcd.io/bbolt"
)

// formatVersion is the format that this package reads and writes.
const formatVersion = 1

// headerTable stands for a table in the header's checksum; headerBucket and headerKey are where
// the header is. The key is also what tells a file of ours from any other of bbolt's.
const (
	headerTable  byte = 0xff
	headerBucket      = "meta"
	headerKey         = "lockd"
)

// header is the row that every commit writes anew.
//
// Its place, its checksum and its first field are the same in every format: an older program
// must be able to tell a newer format from damage.
type header struct {
	version uint64
	index   uint64 // of the last transaction that the file has
}

var headerCodec = codec[header]{
	append: func(buf []byte, row *header) []byte {
		buf = binary.AppendUvarint(buf, row.version)
		return binary.AppendUvarint(buf, row.index)
	},
	decode: func(_ string, payload []byte) (header, error) {
		d := decoder{rest: payload}
		row := header{version: d.uint64()}
		if d.err == nil && row.version != formatVersion {
			return row, nil // what follows is for those who know that version
		}
		row.index = d.uint64()
		return row, d.end()
	},
}

// writeHeader makes index the last one of the file.
func writeHeader(tx *bbolt.Tx, index uint64) error {
	bucket := tx.Bucket([]byte(headerBucket))
	if bucket == nil {
		return fmt.Errorf("%w: it has no bucket %s", ErrCorrupt, headerBucket)
	}
	row := header{version: formatVersion, index: index}
	value := appendRow(nil, headerTable, headerKey, headerCodec, &row)
	return bucket.Put([]byte(headerKey), value)
}

// readHeader returns the last index of the file. It returns [ErrFormat] if the file is not of
// this package's format.
func readHeader(tx *bbolt.Tx) (index uint64, err error) {
	var value []byte
	if bucket := tx.Bucket([]byte(headerBucket)); bucket != nil {
		value = bucket.Get([]byte(headerKey))
	}
	if value == nil {
		return 0, fmt.Errorf("%w: it is a bbolt file of another program; "+
			"choose another path", ErrFormat)
	}
	row, err := decodeRow(headerTable, headerKey, headerCodec, value)
	switch {
	case err != nil:
		return 0, err
	case row.version != formatVersion:
		return 0, fmt.Errorf("%w: it has version %d, this program knows version %d only; "+
			"use the program that wrote it, or a newer one", ErrFormat, row.version, formatVersion)
	case row.index < FirstIndex:
		return 0, fmt.Errorf("%w: its last index is %d, less than %d",
			ErrCorrupt, row.index, FirstIndex)
	}
	return row.index, nil
}
