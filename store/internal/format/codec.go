package format

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"unsafe"

	"github.com/lockd/lockd/internal/schema"
)

// A row in the file is its key, as bbolt's key, and a value: the payload, which has what the key
// does not say, and a checksum. The codecs are written by hand: a codec by reflection costs a
// commit 7 to 22 %.

// ChecksumSize is the length of the checksum behind the payload: a CRC-32C, most significant byte
// first. It is the strongest checksum for which the usual processors have an instruction; bbolt's
// pages have none.
const ChecksumSize = 4

// Rows is the format of the rows of one table.
type Rows[T any] struct {
	Table byte // its number, which is in the checksums

	// AppendPayload appends the payload of a row, and returns the longer buf. DecodePayload makes a
	// row from a key and a payload. The row shares their memory.
	AppendPayload func(buf []byte, row *T) []byte
	DecodePayload func(key string, payload []byte) (T, error)

	index  func(row *T) uint64 // of the row's last change
	layout *layout             // nil: rows lie under their keys
}

// Append appends the value of the row at that place in a file, and returns the longer buf.
func (r *Rows[T]) Append(buf []byte, place string, row *T) []byte {
	start := len(buf)
	buf = r.AppendPayload(buf, row)
	sum := Checksum(r.Table, BytesOf(place), buf[start:])
	return binary.BigEndian.AppendUint32(buf, sum)
}

// Decode reads a value that Append made for the same place, and shares no memory with it. For any
// other value it returns an [ErrCorrupt] that names table and place; it never panics.
func (r *Rows[T]) Decode(place string, value []byte) (row T, err error) {
	if row, err = r.decode(place, bytes.Clone(value)); err != nil {
		err = RowError(r.Table, place, err)
	}
	return row, err
}

// decode is Decode, but the row shares the value's memory, and the error names no row.
func (r *Rows[T]) decode(place string, value []byte) (row T, err error) {
	payload, err := verify(r.Table, BytesOf(place), value)
	if err == nil {
		row, err = r.DecodePayload(r.Key(place), payload)
	}
	return row, err
}

// changed implements Changed for one table.
func (r *Rows[T]) changed(place string, value []byte) (uint64, error) {
	row, err := r.decode(place, value)
	if err != nil {
		return 0, err
	}
	return r.index(&row), nil
}

// Changed returns the index of a row's last change. It returns an error that says what is wrong
// with the value, unless Append made it for the same table and place.
func Changed(table byte, place string, value []byte) (uint64, error) {
	return []interface {
		changed(place string, value []byte) (uint64, error)
	}{
		&KeyRows, &SessionRows, &NodeRows, &ServiceRows, &CheckRows, &AttachmentRows, &DelayRows,
		&GraveRows, &MarkRows, &ShareRows,
	}[table].changed(place, value)
}

// RowError returns an [ErrCorrupt] that names the row and wraps err.
func RowError(table byte, key string, err error) error {
	return fmt.Errorf("%w: row %.100q of %s: %w", ErrCorrupt, key, TableName(table), err)
}

// verify returns the payload of a value that has the right checksum.
func verify(table byte, key, value []byte) (payload []byte, err error) {
	end := len(value) - ChecksumSize
	if end < 0 {
		return nil, ErrShort
	}
	if StoredChecksum(value) != Checksum(table, key, value[:end]) {
		return nil, errChecksum
	}
	return value[:end], nil
}

// VerifyRow returns the payload of a row that has the right checksum. The value follows the key in
// memory: with one CRC in place of two an Open takes a tenth less time.
func VerifyRow(table byte, row []byte, keySize int) (payload []byte, err error) {
	end := len(row) - ChecksumSize
	if end < keySize {
		return nil, ErrShort
	}
	if StoredChecksum(row) != crc32.Update(checksumStart(table, keySize), castagnoli, row[:end]) {
		return nil, errChecksum
	}
	return row[keySize:end], nil
}

// StoredChecksum returns the checksum at the end of a value that Append made.
func StoredChecksum(value []byte) uint32 {
	return binary.BigEndian.Uint32(value[len(value)-ChecksumSize:])
}

// Checksum covers the table and the key too, so that a row is not taken for another one. The CRC
// starts from the table and the length of the key, which says where the payload begins.
func Checksum(table byte, key, payload []byte) uint32 {
	sum := crc32.Update(checksumStart(table, len(key)), castagnoli, key)
	return crc32.Update(sum, castagnoli, payload)
}

func checksumStart(table byte, keySize int) uint32 { return uint32(table)<<24 ^ uint32(keySize) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BytesOf returns the bytes of a key, which must not be changed. A conversion would be a copy for
// every row.
func BytesOf(key string) []byte { return unsafe.Slice(unsafe.StringData(key), len(key)) }

// StringOf returns the bytes, which are not changed any more, as a string.
func StringOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// KeyRows is the format of the table of keys.
var KeyRows = Rows[schema.Key]{
	Table: tableKeys,
	index: func(row *schema.Key) uint64 { return max(row.ModifyIndex, row.Fence) },
	AppendPayload: func(buf []byte, row *schema.Key) []byte {
		buf = AppendBytes(buf, row.Value)
		buf = binary.AppendUvarint(buf, row.Flags)
		buf = appendID(buf, row.Session)
		return AppendUint64(buf, row.CreateIndex, row.ModifyIndex, row.LockIndex, row.Fence)
	},
	DecodePayload: func(key string, payload []byte) (row schema.Key, err error) {
		err = decodeKey(&row, key, payload)
		return row, err
	},
}

func decodeKey(row *schema.Key, key string, payload []byte) error {
	d := Decoder{Rest: payload}
	row.Key = key
	row.Value = d.Bytes()
	row.Flags = d.Uint64()
	row.Session = d.id()
	row.CreateIndex = d.Uint64()
	row.ModifyIndex = d.Uint64()
	row.LockIndex = d.Uint64()
	row.Fence = d.Uint64()
	return d.End()
}

// LockedKey decodes a row, and reports whether the key is locked. Returning the row would take as
// long again.
func LockedKey(key string, payload []byte) (bool, error) {
	var row schema.Key
	err := decodeKey(&row, key, payload)
	return row.Session != schema.ID{}, err
}

// SessionRows is the format of the table of sessions.
var SessionRows = Rows[schema.Session]{
	Table:  tableSessions,
	index:  func(row *schema.Session) uint64 { return row.CreateIndex },
	layout: &sessionLayout,
	AppendPayload: func(buf []byte, row *schema.Session) []byte {
		buf = AppendString(buf, row.Name, row.Node)
		buf = binary.AppendVarint(buf, int64(row.TTL))
		buf = binary.AppendVarint(buf, int64(row.Grace))
		buf = binary.AppendVarint(buf, int64(row.LockDelay))
		buf = append(buf, row.Behavior, row.Lifetime)
		buf = appendStrings(buf, row.Checks)
		buf = binary.AppendUvarint(buf, row.CreateIndex)
		if len(row.Meta) == 0 { // as of most rows
			return buf
		}
		return appendMap(buf, row.Meta)
	},
	DecodePayload: func(key string, payload []byte) (schema.Session, error) {
		if len(key) != len(schema.ID{}) {
			return schema.Session{}, ErrKeyLength
		}
		d := Decoder{Rest: payload}
		row := schema.Session{
			ID:          schema.ID([]byte(key)),
			Name:        d.String(),
			Node:        d.String(),
			TTL:         d.duration(),
			Grace:       d.duration(),
			LockDelay:   d.duration(),
			Behavior:    d.Uint8(),
			Lifetime:    d.Uint8(),
			Checks:      d.strings(),
			CreateIndex: d.Uint64(),
		}
		if len(d.Rest) > 0 {
			if row.Meta = d.stringMap(); row.Meta == nil {
				d.Fail(errLong) // an empty map is not written
			}
		}
		return row, d.End()
	},
}

// NodeRows is the format of the table of nodes.
var NodeRows = Rows[schema.Node]{
	Table: tableNodes,
	index: func(row *schema.Node) uint64 { return row.ModifyIndex },
	AppendPayload: func(buf []byte, row *schema.Node) []byte {
		buf = AppendString(buf, row.Name, row.ID, row.Address)
		buf = appendMap(buf, row.Meta)
		return AppendUint64(buf, row.CreateIndex, row.ModifyIndex)
	},
	DecodePayload: func(_ string, payload []byte) (schema.Node, error) {
		d := Decoder{Rest: payload}
		row := schema.Node{
			Name:        d.String(),
			ID:          d.String(),
			Address:     d.String(),
			Meta:        d.stringMap(),
			CreateIndex: d.Uint64(),
			ModifyIndex: d.Uint64(),
		}
		return row, d.End()
	},
}

// ServiceRows is the format of the table of services.
var ServiceRows = Rows[schema.Service]{
	Table: tableServices,
	index: func(row *schema.Service) uint64 { return row.ModifyIndex },
	AppendPayload: func(buf []byte, row *schema.Service) []byte {
		buf = AppendString(buf, row.Node, row.ID, row.Name, row.Address)
		buf = binary.AppendVarint(buf, int64(row.Port))
		buf = appendStrings(buf, row.Tags)
		buf = appendMap(buf, row.Meta)
		return AppendUint64(buf, row.CreateIndex, row.ModifyIndex)
	},
	DecodePayload: func(_ string, payload []byte) (schema.Service, error) {
		d := Decoder{Rest: payload}
		row := schema.Service{
			Node:        d.String(),
			ID:          d.String(),
			Name:        d.String(),
			Address:     d.String(),
			Port:        d.int(),
			Tags:        d.strings(),
			Meta:        d.stringMap(),
			CreateIndex: d.Uint64(),
			ModifyIndex: d.Uint64(),
		}
		return row, d.End()
	},
}

// CheckRows is the format of the table of checks.
var CheckRows = Rows[schema.Check]{
	Table: tableChecks,
	index: func(row *schema.Check) uint64 { return row.ModifyIndex },
	AppendPayload: func(buf []byte, row *schema.Check) []byte {
		buf = AppendString(buf, row.Node, row.ID, row.Name, row.Notes, row.Output, row.ServiceID)
		buf = append(buf, row.Status)
		buf = AppendUint64(buf, row.CreateIndex, row.ModifyIndex)
		if row.TTL == 0 && len(row.Meta) == 0 { // as of most rows
			return buf
		}
		buf = binary.AppendVarint(buf, int64(row.TTL))
		return appendMap(buf, row.Meta)
	},
	DecodePayload: func(_ string, payload []byte) (schema.Check, error) {
		d := Decoder{Rest: payload}
		row := schema.Check{
			Node:        d.String(),
			ID:          d.String(),
			Name:        d.String(),
			Notes:       d.String(),
			Output:      d.String(),
			ServiceID:   d.String(),
			Status:      d.Uint8(),
			CreateIndex: d.Uint64(),
			ModifyIndex: d.Uint64(),
		}
		if len(d.Rest) > 0 {
			row.TTL, row.Meta = d.duration(), d.stringMap()
			if row.TTL == 0 && row.Meta == nil {
				d.Fail(errLong) // they are not written if both are empty
			}
		}
		return row, d.End()
	},
}

// AttachmentRows is the format of the table of attachments.
var AttachmentRows = Rows[schema.Attachment]{
	Table: tableAttachments,
	index: func(row *schema.Attachment) uint64 { return row.ModifyIndex },
	AppendPayload: func(buf []byte, row *schema.Attachment) []byte {
		buf = appendID(buf, row.Session)
		buf = AppendBytes(buf, row.Value)
		return AppendUint64(buf, row.CreateIndex, row.ModifyIndex)
	},
	DecodePayload: func(key string, payload []byte) (schema.Attachment, error) {
		d := Decoder{Rest: payload}
		row := schema.Attachment{
			Name:        key,
			Session:     d.id(),
			Value:       d.Bytes(),
			CreateIndex: d.Uint64(),
			ModifyIndex: d.Uint64(),
		}
		return row, d.End()
	},
}

// DelayRows is the format of the table of delays.
var DelayRows = Rows[schema.Delay]{
	Table:  tableDelays,
	index:  func(row *schema.Delay) uint64 { return row.Index },
	layout: &markedLayout,
	AppendPayload: func(buf []byte, row *schema.Delay) []byte {
		buf = binary.AppendVarint(buf, row.Until.Unix())
		buf = binary.AppendUvarint(buf, uint64(row.Until.Nanosecond()))
		buf = binary.AppendVarint(buf, int64(row.Length))
		buf = binary.AppendUvarint(buf, row.Index)
		if row.Mode == 0 { // as of most rows
			return buf
		}
		return append(buf, row.Mode)
	},
	DecodePayload: func(key string, payload []byte) (schema.Delay, error) {
		d := Decoder{Rest: payload}
		row := schema.Delay{
			Key:    key,
			Until:  d.time(),
			Length: d.duration(),
			Index:  d.Uint64(),
		}
		if len(d.Rest) > 0 {
			if row.Mode = d.Uint8(); row.Mode == 0 {
				d.Fail(errLong) // it is not written then
			}
		}
		return row, d.End()
	},
}

// GraveRows is the format of the table of tombstones.
var GraveRows = Rows[schema.Grave]{
	Table:  tableGraves,
	index:  func(row *schema.Grave) uint64 { return row.Index },
	layout: &markedLayout,
	AppendPayload: func(buf []byte, row *schema.Grave) []byte {
		return binary.AppendUvarint(buf, row.Index)
	},
	DecodePayload: func(key string, payload []byte) (schema.Grave, error) {
		if key == "" {
			return schema.Grave{}, ErrKeyLength
		}
		d := Decoder{Rest: payload}
		row := schema.Grave{Kind: key[0], Name: key[1:], Index: d.Uint64()}
		return row, d.End()
	},
}

// MarkRows is the format of the table of marks.
var MarkRows = Rows[schema.Mark]{
	Table: tableMarks,
	index: func(row *schema.Mark) uint64 { return row.Index },
	AppendPayload: func(buf []byte, row *schema.Mark) []byte {
		return binary.AppendUvarint(buf, row.Index)
	},
	DecodePayload: func(key string, payload []byte) (schema.Mark, error) {
		d := Decoder{Rest: payload}
		row := schema.Mark{Name: key, Index: d.Uint64()}
		return row, d.End()
	},
}

// ShareRows is the format of the table of shares. The row's key has all of it except the lock
// index.
var ShareRows = Rows[schema.Share]{
	Table:  tableShares,
	index:  (*schema.Share).Fence, // of the grant
	layout: &markedLayout,
	AppendPayload: func(buf []byte, row *schema.Share) []byte {
		return binary.AppendUvarint(buf, row.LockIndex)
	},
	DecodePayload: func(key string, payload []byte) (row schema.Share, err error) {
		if !schema.IsShareKey(key) {
			return schema.Share{}, ErrKeyLength
		}
		row.Row = key
		d := Decoder{Rest: payload}
		row.LockIndex = d.Uint64()
		return row, d.End()
	},
}
