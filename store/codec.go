package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"github.com/lockd/lockd/internal/schema"
	"hash/crc32"
	"unsafe"
)

// A row in the file is its key, as bbolt's key, and a value: the payload, which has what the key
// does not say, and a checksum. The codecs are written by hand: one that works by reflection costs
// a commit 7 to 22 %.

// checksumSize is the length of what follows the payload: a CRC-32C, most significant byte first.
// It is the strongest check that the usual processors have an instruction for; bbolt's pages have
// none.
const checksumSize = 4

// codec turns the rows of one type into payloads and back. What decode returns shares the memory of
// the key and the payload.
type codec[T any] struct {
	append func(buf []byte, row *T) []byte
	decode func(key string, payload []byte) (T, error)
}

// appendRow appends the value that stands for the row in a file, and returns the longer buf.
func appendRow[T any](buf []byte, table byte, key string, c codec[T], row *T) []byte {
	start := len(buf)
	buf = c.append(buf, row)
	sum := checksum(table, bytesOf(key), buf[start:])
	return binary.BigEndian.AppendUint32(buf, sum)
}

// decodeRow reads a value that appendRow made for the same table and key, and shares no memory with
// it. For any other it returns an [ErrCorrupt] that names both; it never panics.
func decodeRow[T any](table byte, key string, c codec[T], value []byte) (row T, err error) {
	payload, err := verify(table, bytesOf(key), value)
	if err == nil {
		row, err = c.decode(key, bytes.Clone(payload))
	}
	if err != nil {
		var none T
		return none, rowError(table, key, err)
	}
	return row, nil
}

// rowError says of what row the error is.
func rowError(table byte, key string, err error) error {
	return fmt.Errorf("%w: row %.100q of %s: %w", ErrCorrupt, key, tableName(table), err)
}

// verify returns the payload of a value that has the right checksum.
func verify(table byte, key, value []byte) (payload []byte, err error) {
	end := len(value) - checksumSize
	if end < 0 {
		return nil, errShort
	}
	if storedChecksum(value) != checksum(table, key, value[:end]) {
		return nil, errChecksum
	}
	return value[:end], nil
}

// verifyRow is verify for a key that the value follows in memory. One CRC in place of two takes a
// tenth off an Open.
func verifyRow(table byte, row []byte, keySize int) (payload []byte, err error) {
	end := len(row) - checksumSize
	if end < keySize {
		return nil, errShort
	}
	if storedChecksum(row) != crc32.Update(checksumStart(table, keySize), castagnoli, row[:end]) {
		return nil, errChecksum
	}
	return row[keySize:end], nil
}

// storedChecksum returns the checksum that a value which appendRow made ends with.
func storedChecksum(value []byte) uint32 {
	return binary.BigEndian.Uint32(value[len(value)-checksumSize:])
}

// checksum covers the table and the key too, so that a row is not taken for another one. The CRC
// starts from the table and the length of the key, which says where the payload begins.
func checksum(table byte, key, payload []byte) uint32 {
	sum := crc32.Update(checksumStart(table, len(key)), castagnoli, key)
	return crc32.Update(sum, castagnoli, payload)
}

func checksumStart(table byte, keySize int) uint32 { return uint32(table)<<24 ^ uint32(keySize) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bytesOf returns the bytes of a key, which nobody may change. A conversion would be a copy for
// every row.
func bytesOf(key string) []byte { return unsafe.Slice(unsafe.StringData(key), len(key)) }

// stringOf returns the bytes, which nobody changes, as a string.
func stringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

var keyCodec = codec[schema.Key]{
	append: func(buf []byte, row *schema.Key) []byte {
		buf = appendBytes(buf, row.Value)
		buf = binary.AppendUvarint(buf, row.Flags)
		buf = appendID(buf, row.Session)
		buf = binary.AppendUvarint(buf, row.CreateIndex)
		buf = binary.AppendUvarint(buf, row.ModifyIndex)
		buf = binary.AppendUvarint(buf, row.LockIndex)
		return binary.AppendUvarint(buf, row.Fence)
	},
	decode: func(key string, payload []byte) (row schema.Key, err error) {
		err = decodeKey(&row, key, payload)
		return row, err
	},
}

func decodeKey(row *schema.Key, key string, payload []byte) error {
	d := decoder{rest: payload}
	row.Key = key
	row.Value = d.bytes()
	row.Flags = d.uint64()
	row.Session = d.id()
	row.CreateIndex = d.uint64()
	row.ModifyIndex = d.uint64()
	row.LockIndex = d.uint64()
	row.Fence = d.uint64()
	return d.end()
}

// lockedKey decodes a row, and says whether the key is locked. To return the row would take as long
// again.
func lockedKey(key string, payload []byte) (bool, error) {
	var row schema.Key
	err := decodeKey(&row, key, payload)
	return row.Session != schema.ID{}, err
}

var sessionCodec = codec[schema.Session]{
	append: func(buf []byte, row *schema.Session) []byte {
		buf = appendString(buf, row.Name)
		buf = appendString(buf, row.Node)
		buf = binary.AppendVarint(buf, int64(row.TTL))
		buf = binary.AppendVarint(buf, int64(row.Grace))
		buf = binary.AppendVarint(buf, int64(row.LockDelay))
		buf = append(buf, row.Behavior, row.Lifetime)
		buf = appendStrings(buf, row.Checks)
		buf = binary.AppendUvarint(buf, row.CreateIndex)
		if len(row.Meta) == 0 { // so that most rows are as they were before there was any
			return buf
		}
		return appendMap(buf, row.Meta)
	},
	decode: func(key string, payload []byte) (schema.Session, error) {
		if len(key) != len(schema.ID{}) {
			return schema.Session{}, errKeyLength
		}
		d := decoder{rest: payload}
		row := schema.Session{
			ID:          schema.ID([]byte(key)),
			Name:        d.string(),
			Node:        d.string(),
			TTL:         d.duration(),
			Grace:       d.duration(),
			LockDelay:   d.duration(),
			Behavior:    d.uint8(),
			Lifetime:    d.uint8(),
			Checks:      d.strings(),
			CreateIndex: d.uint64(),
		}
		if len(d.rest) > 0 {
			if row.Meta = d.stringMap(); row.Meta == nil && d.err == nil {
				d.fail(errLong) // an empty map is not written
			}
		}
		return row, d.end()
	},
}

var nodeCodec = codec[schema.Node]{
	append: func(buf []byte, row *schema.Node) []byte {
		buf = appendString(buf, row.Name)
		buf = appendString(buf, row.ID)
		buf = appendString(buf, row.Address)
		buf = appendMap(buf, row.Meta)
		buf = binary.AppendUvarint(buf, row.CreateIndex)
		return binary.AppendUvarint(buf, row.ModifyIndex)
	},
	decode: func(_ string, payload []byte) (schema.Node, error) {
		d := decoder{rest: payload}
		row := schema.Node{
			Name:        d.string(),
			ID:          d.string(),
			Address:     d.string(),
			Meta:        d.stringMap(),
			CreateIndex: d.uint64(),
			ModifyIndex: d.uint64(),
		}
		return row, d.end()
	},
}

var serviceCodec = codec[schema.Service]{
	append: func(buf []byte, row *schema.Service) []byte {
		buf = appendString(buf, row.Node)
		buf = appendString(buf, row.ID)
		buf = appendString(buf, row.Name)
		buf = appendString(buf, row.Address)
		buf = binary.AppendVarint(buf, int64(row.Port))
		buf = appendStrings(buf, row.Tags)
		buf = appendMap(buf, row.Meta)
		buf = binary.AppendUvarint(buf, row.CreateIndex)
		return binary.AppendUvarint(buf, row.ModifyIndex)
	},
	decode: func(_ string, payload []byte) (schema.Service, error) {
		d := decoder{rest: payload}
		row := schema.Service{
			Node:        d.string(),
			ID:          d.string(),
			Name:        d.string(),
			Address:     d.string(),
			Port:        d.int(),
			Tags:        d.strings(),
			Meta:        d.stringMap(),
			CreateIndex: d.uint64(),
			ModifyIndex: d.uint64(),
		}
		return row, d.end()
	},
}

var checkCodec = codec[schema.Check]{
	append: func(buf []byte, row *schema.Check) []byte {
		buf = appendString(buf, row.Node)
		buf = appendString(buf, row.ID)
		buf = appendString(buf, row.Name)
		buf = appendString(buf, row.Notes)
		buf = appendString(buf, row.Output)
		buf = appendString(buf, row.ServiceID)
		buf = append(buf, row.Status)
		buf = binary.AppendUvarint(buf, row.CreateIndex)
		buf = binary.AppendUvarint(buf, row.ModifyIndex)
		if row.TTL == 0 && len(row.Meta) == 0 { // as rows were before there was either
			return buf
		}
		buf = binary.AppendVarint(buf, int64(row.TTL))
		return appendMap(buf, row.Meta)
	},
	decode: func(_ string, payload []byte) (schema.Check, error) {
		d := decoder{rest: payload}
		row := schema.Check{
			Node:        d.string(),
			ID:          d.string(),
			Name:        d.string(),
			Notes:       d.string(),
			Output:      d.string(),
			ServiceID:   d.string(),
			Status:      d.uint8(),
			CreateIndex: d.uint64(),
			ModifyIndex: d.uint64(),
		}
		if len(d.rest) > 0 {
			row.TTL, row.Meta = d.duration(), d.stringMap()
			if row.TTL == 0 && row.Meta == nil && d.err == nil {
				d.fail(errLong) // they are not written if both are empty
			}
		}
		return row, d.end()
	},
}

var attachmentCodec = codec[schema.Attachment]{
	append: func(buf []byte, row *schema.Attachment) []byte {
		buf = appendID(buf, row.Session)
		buf = appendBytes(buf, row.Value)
		buf = binary.AppendUvarint(buf, row.CreateIndex)
		return binary.AppendUvarint(buf, row.ModifyIndex)
	},
	decode: func(key string, payload []byte) (schema.Attachment, error) {
		d := decoder{rest: payload}
		row := schema.Attachment{
			Name:        key,
			Session:     d.id(),
			Value:       d.bytes(),
			CreateIndex: d.uint64(),
			ModifyIndex: d.uint64(),
		}
		return row, d.end()
	},
}

var delayCodec = codec[schema.Delay]{
	append: func(buf []byte, row *schema.Delay) []byte {
		buf = binary.AppendVarint(buf, row.Until.Unix())
		buf = binary.AppendUvarint(buf, uint64(row.Until.Nanosecond()))
		buf = binary.AppendVarint(buf, int64(row.Length))
		if row.Index == 0 { // of a row that was read without one
			return buf
		}
		return binary.AppendUvarint(buf, row.Index)
	},
	decode: func(key string, payload []byte) (schema.Delay, error) {
		d := decoder{rest: payload}
		row := schema.Delay{
			Key:    key,
			Until:  d.time(),
			Length: d.duration(),
		}
		if len(d.rest) > 0 {
			if row.Index = d.uint64(); row.Index == 0 && d.err == nil {
				d.fail(errLong) // none is not written
			}
		}
		return row, d.end()
	},
}

var graveCodec = codec[schema.Grave]{
	append: func(buf []byte, row *schema.Grave) []byte {
		return binary.AppendUvarint(buf, row.Index)
	},
	decode: func(key string, payload []byte) (schema.Grave, error) {
		if key == "" {
			return schema.Grave{}, errKeyLength
		}
		d := decoder{rest: payload}
		row := schema.Grave{Kind: key[0], Name: key[1:], Index: d.uint64()}
		return row, d.end()
	},
}

var markCodec = codec[schema.Mark]{
	append: func(buf []byte, row *schema.Mark) []byte {
		return binary.AppendUvarint(buf, row.Index)
	},
	decode: func(key string, payload []byte) (schema.Mark, error) {
		d := decoder{rest: payload}
		row := schema.Mark{Name: key, Index: d.uint64()}
		return row, d.end()
	},
}
