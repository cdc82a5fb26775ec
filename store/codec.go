package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"time"
)

// A row in the file is its key, as bbolt's key, and a value: the payload, which has what the key
// does not say, and a checksum. A payload is the fields in the order that its codec names them:
//
//	uint8         1 byte
//	uint64        a varint: 7 bits a byte, least first, in as few bytes as it takes
//	int, int64    a varint of twice the number, or of twice its complement plus 1 if it is negative
//	ID            0, or 1 and the 16 bytes
//	string, bytes their length as a varint, and the bytes
//	[]string      its length as a varint, and the strings
//	map           its length as a varint, and each key and value, in the order of the keys
//
// One row has one encoding: a decoder accepts nothing else, so that what it accepts is what an
// encoder wrote. The codecs are written by hand because a reflective one costs a commit 7-22 %.

// checksumSize is the length of what follows the payload: a CRC-32C, most significant byte first.
// It is the strongest check that the usual processors have an instruction for; bbolt's pages have
// none.
const checksumSize = 4

// What a decoder finds wrong.
var (
	errChecksum  = errors.New("its checksum does not match")
	errShort     = errors.New("it ends too early")
	errLong      = errors.New("it goes on after its end")
	errNumber    = errors.New("it has a number that is too large, or longer than it need be")
	errID        = errors.New("it has a session ID of an unknown form")
	errOrder     = errors.New("it has a map whose keys are out of order")
	errKeyLength = errors.New("its key has the wrong length")
)

// codec turns the rows of one type into payloads and back. The strings and slices that decode
// returns share no memory with the payload.
type codec[T any] struct {
	append func(buf []byte, row *T) []byte
	decode func(key string, payload []byte) (T, error)
}

// appendRow appends the value that stands for the row in a file, and returns the longer buf.
func appendRow[T any](buf []byte, table byte, key string, c codec[T], row *T) []byte {
	start := len(buf)
	buf = c.append(buf, row)
	return binary.BigEndian.AppendUint32(buf, checksum(table, key, buf[start:]))
}

// decodeRow reads a value that appendRow made for the same table and key. For any other it
// returns an [ErrCorrupt] that names both; it never panics.
func decodeRow[T any](table byte, key string, c codec[T], value []byte) (T, error) {
	row, err := decodeValue(table, key, c, value)
	if err != nil {
		var none T
		return none, fmt.Errorf("%w: row %.100q of %s: %w", ErrCorrupt, key, tableName(table), err)
	}
	return row, nil
}

func decodeValue[T any](table byte, key string, c codec[T], value []byte) (row T, err error) {
	end := len(value) - checksumSize
	if end < 0 {
		return row, errShort
	}
	payload := value[:end]
	if binary.BigEndian.Uint32(value[end:]) != checksum(table, key, payload) {
		return row, errChecksum
	}
	return c.decode(key, payload)
}

// checksum covers the table and the key too, so that a row is not taken for another one. The CRC
// starts from the table and the length of the key, which says where the payload begins.
func checksum(table byte, key string, payload []byte) uint32 {
	polynomial := crc32.MakeTable(crc32.Castagnoli)
	sum := uint32(table)<<24 ^ uint32(len(key))
	sum = crc32.Update(sum, polynomial, []byte(key))
	return crc32.Update(sum, polynomial, payload)
}

var keyCodec = codec[Key]{
	append: func(buf []byte, row *Key) []byte {
		buf = appendBytes(buf, row.Value)
		buf = binary.AppendUvarint(buf, row.Flags)
		buf = appendID(buf, row.Session)
		buf = binary.AppendUvarint(buf, row.CreateIndex)
		buf = binary.AppendUvarint(buf, row.ModifyIndex)
		buf = binary.AppendUvarint(buf, row.LockIndex)
		return binary.AppendUvarint(buf, row.Fence)
	},
	decode: func(key string, payload []byte) (Key, error) {
		d := decoder{rest: payload}
		row := Key{
			Key:         key,
			Value:       d.bytes(),
			Flags:       d.uint64(),
			Session:     d.id(),
			CreateIndex: d.uint64(),
			ModifyIndex: d.uint64(),
			LockIndex:   d.uint64(),
			Fence:       d.uint64(),
		}
		return row, d.end()
	},
}

var sessionCodec = codec[Session]{
	append: func(buf []byte, row *Session) []byte {
		buf = appendString(buf, row.Name)
		buf = appendString(buf, row.Node)
		buf = binary.AppendVarint(buf, int64(row.TTL))
		buf = binary.AppendVarint(buf, int64(row.Grace))
		buf = binary.AppendVarint(buf, int64(row.LockDelay))
		buf = append(buf, row.Behavior, row.Lifetime)
		buf = appendStrings(buf, row.Checks)
		return binary.AppendUvarint(buf, row.CreateIndex)
	},
	decode: func(key string, payload []byte) (Session, error) {
		if len(key) != len(ID{}) {
			return Session{}, errKeyLength
		}
		d := decoder{rest: payload}
		row := Session{
			ID:          ID([]byte(key)),
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
		return row, d.end()
	},
}

var nodeCodec = codec[Node]{
	append: func(buf []byte, row *Node) []byte {
		buf = appendString(buf, row.Name)
		buf = appendString(buf, row.ID)
		buf = appendString(buf, row.Address)
		buf = appendMap(buf, row.Meta)
		buf = binary.AppendUvarint(buf, row.CreateIndex)
		return binary.AppendUvarint(buf, row.ModifyIndex)
	},
	decode: func(_ string, payload []byte) (Node, error) {
		d := decoder{rest: payload}
		row := Node{
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

var serviceCodec = codec[Service]{
	append: func(buf []byte, row *Service) []byte {
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
	decode: func(_ string, payload []byte) (Service, error) {
		d := decoder{rest: payload}
		row := Service{
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

var checkCodec = codec[Check]{
	append: func(buf []byte, row *Check) []byte {
		buf = appendString(buf, row.Node)
		buf = appendString(buf, row.ID)
		buf = appendString(buf, row.Name)
		buf = appendString(buf, row.Notes)
		buf = appendString(buf, row.Output)
		buf = appendString(buf, row.ServiceID)
		buf = append(buf, row.Status)
		buf = binary.AppendUvarint(buf, row.CreateIndex)
		return binary.AppendUvarint(buf, row.ModifyIndex)
	},
	decode: func(_ string, payload []byte) (Check, error) {
		d := decoder{rest: payload}
		row := Check{
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
		return row, d.end()
	},
}

var attachmentCodec = codec[Attachment]{
	append: func(buf []byte, row *Attachment) []byte {
		buf = appendID(buf, row.Session)
		buf = appendBytes(buf, row.Value)
		buf = binary.AppendUvarint(buf, row.CreateIndex)
		return binary.AppendUvarint(buf, row.ModifyIndex)
	},
	decode: func(key string, payload []byte) (Attachment, error) {
		d := decoder{rest: payload}
		row := Attachment{
			Name:        key,
			Session:     d.id(),
			Value:       d.bytes(),
			CreateIndex: d.uint64(),
			ModifyIndex: d.uint64(),
		}
		return row, d.end()
	},
}

var delayCodec = codec[Delay]{
	append: func(buf []byte, row *Delay) []byte {
		buf = binary.AppendVarint(buf, row.Until.UnixNano())
		return binary.AppendVarint(buf, int64(row.Length))
	},
	decode: func(key string, payload []byte) (Delay, error) {
		d := decoder{rest: payload}
		row := Delay{
			Key:    key,
			Until:  time.Unix(0, d.int64()).UTC(),
			Length: d.duration(),
		}
		return row, d.end()
	},
}

var graveCodec = codec[Grave]{
	append: func(buf []byte, row *Grave) []byte {
		return binary.AppendUvarint(buf, row.Index)
	},
	decode: func(key string, payload []byte) (Grave, error) {
		if key == "" {
			return Grave{}, errKeyLength
		}
		d := decoder{rest: payload}
		row := Grave{Kind: key[0], Name: key[1:], Index: d.uint64()}
		return row, d.end()
	},
}

var markCodec = codec[Mark]{
	append: func(buf []byte, row *Mark) []byte {
		return binary.AppendUvarint(buf, row.Index)
	},
	decode: func(key string, payload []byte) (Mark, error) {
		d := decoder{rest: payload}
		row := Mark{Name: key, Index: d.uint64()}
		return row, d.end()
	},
}

func appendString(buf []byte, s string) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

func appendBytes(buf, b []byte) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(b))), b...)
}

func appendStrings(buf []byte, list []string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(list)))
	for _, s := range list {
		buf = appendString(buf, s)
	}
	return buf
}

func appendMap(buf []byte, m map[string]string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(m)))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		buf = appendString(buf, key)
		buf = appendString(buf, m[key])
	}
	return buf
}

func appendID(buf []byte, id ID) []byte {
	if id == (ID{}) {
		return append(buf, 0)
	}
	return append(append(buf, 1), id[:]...)
}

// decoder takes a payload apart from its front. After the first error it returns zeros only, so
// that the error need be looked at once, at the end.
type decoder struct {
	rest []byte
	err  error
}

// end returns the first error, or that something is left.
func (d *decoder) end() error {
	if d.err == nil && len(d.rest) > 0 {
		return errLong
	}
	return d.err
}

func (d *decoder) fail(err error) {
	d.err = err
	d.rest = nil // nothing more is read
}

// next returns the next n bytes, which are still the payload's.
func (d *decoder) next(n uint64) []byte {
	if d.err != nil {
		return nil
	}
	if n > uint64(len(d.rest)) {
		d.fail(errShort)
		return nil
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *decoder) uint8() uint8 {
	if b := d.next(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if d.err != nil {
		return 0
	}
	number, n := binary.Uvarint(d.rest)
	switch {
	case n == 0:
		d.fail(errShort)
		return 0
	case n < 0, n > 1 && d.rest[n-1] == 0: // a last byte of 0 adds nothing
		d.fail(errNumber)
		return 0
	}
	d.rest = d.rest[n:]
	return number
}

func (d *decoder) int64() int64 {
	number := d.uint64()
	half := int64(number >> 1)
	if number&1 != 0 {
		return ^half
	}
	return half
}

func (d *decoder) int() int {
	number := d.int64()
	if int64(int(number)) != number { // on a 32-bit machine
		d.fail(errNumber)
		return 0
	}
	return int(number)
}

func (d *decoder) duration() time.Duration { return time.Duration(d.int64()) }

func (d *decoder) id() ID {
	switch d.uint8() {
	case 0:
		return ID{}
	case 1:
		if b := d.next(uint64(len(ID{}))); b != nil && ID(b) != (ID{}) {
			return ID(b)
		}
	}
	if d.err == nil {
		d.fail(errID)
	}
	return ID{}
}

func (d *decoder) string() string { return string(d.next(d.uint64())) }

func (d *decoder) bytes() []byte {
	return append([]byte(nil), d.next(d.uint64())...)
}

// count reads the number of elements that follow, each of at least size bytes: more than the
// payload has room for are refused before anything is allocated for them.
func (d *decoder) count(size int) int {
	count := d.uint64()
	if count > uint64(len(d.rest)/size) {
		d.fail(errShort)
		return 0
	}
	return int(count)
}

func (d *decoder) strings() []string {
	count := d.count(1)
	if count == 0 {
		return nil
	}
	list := make([]string, count)
	for i := range list {
		list[i] = d.string()
	}
	return list
}

func (d *decoder) stringMap() map[string]string {
	count := d.count(2)
	if count == 0 {
		return nil
	}
	m := make(map[string]string, count)
	last := ""
	for i := range count {
		key := d.string()
		if i > 0 && key <= last && d.err == nil {
			d.fail(errOrder)
		}
		last = key
		m[key] = d.string()
	}
	return m
}
