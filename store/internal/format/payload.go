package format

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/lockd/lockd/internal/schema"
)

// A payload is a row's fields, in the order that its codec names them:
//
//	uint8          1 byte
//	uint64         a varint: 7 bits a byte, the least first, in as few bytes as it takes
//	int, int64     a varint of twice the number, or of twice its complement and 1 if negative
//	ID             0, or 1 and the 16 bytes
//	string, []byte the length as a varint, and the bytes
//	[]string       the length as a varint, and the strings
//	map            the length as a varint, and each key and value, in the order of the keys
//
// A row has one form. A decoder accepts no other, so that what it accepts is what was written.

// ErrCorrupt is store.ErrCorrupt.
var ErrCorrupt = errors.New("file is damaged")

// What a decoder finds wrong.
var (
	errChecksum = errors.New("its checksum does not match")
	errLong     = errors.New("it goes on after its end")
	errID       = errors.New("it has a session ID of an unknown form")
	errOrder    = errors.New("it has a map whose keys are out of order")

	// ErrShort says that something ends before all that it should have.
	ErrShort = errors.New("it ends too early")
	// ErrNumber says that a number is not in its one form.
	ErrNumber = errors.New("it has a number that is too large, or longer than it need be")
	// ErrKeyLength says that a key cannot be a key of its table.
	ErrKeyLength = errors.New("its key has the wrong length")
)

// AppendString appends strings as a payload has them.
func AppendString(buf []byte, list ...string) []byte {
	for _, s := range list {
		buf = append(binary.AppendUvarint(buf, uint64(len(s))), s...)
	}
	return buf
}

// AppendBytes appends bytes as a payload has them.
func AppendBytes(buf, b []byte) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(b))), b...)
}

// AppendUint64 appends numbers as a payload has them.
func AppendUint64(buf []byte, numbers ...uint64) []byte {
	for _, n := range numbers {
		buf = binary.AppendUvarint(buf, n)
	}
	return buf
}

func appendStrings(buf []byte, list []string) []byte {
	return AppendString(binary.AppendUvarint(buf, uint64(len(list))), list...)
}

func appendMap(buf []byte, m map[string]string) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(m)))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		buf = AppendString(buf, key, m[key])
	}
	return buf
}

func appendID(buf []byte, id schema.ID) []byte {
	if id == (schema.ID{}) {
		return append(buf, 0)
	}
	return append(append(buf, 1), id[:]...)
}

// Decoder reads a payload from its beginning. After the first error it returns only zeros, so the
// caller checks the error only once, at the end.
type Decoder struct {
	Rest []byte
	Err  error
}

// End returns the first error, or an error if something is left.
func (d *Decoder) End() error {
	if d.Err == nil && len(d.Rest) > 0 {
		return errLong
	}
	return d.Err
}

// Fail notes the error, unless there was one before, and ends the decoding.
func (d *Decoder) Fail(err error) {
	if d.Err == nil {
		d.Err = err
	}
}

// next returns the next n bytes, which share the payload's memory.
func (d *Decoder) next(n uint64) []byte {
	if d.Err != nil {
		return nil
	}
	if n > uint64(len(d.Rest)) {
		d.Fail(ErrShort)
		return nil
	}
	taken := d.Rest[:n]
	d.Rest = d.Rest[n:]
	return taken
}

// Uint8 reads a byte.
func (d *Decoder) Uint8() uint8 {
	if b := d.next(1); b != nil {
		return b[0]
	}
	return 0
}

// Uint64 reads a varint.
func (d *Decoder) Uint64() uint64 {
	if d.Err != nil {
		return 0
	}
	number, n := binary.Uvarint(d.Rest)
	switch {
	case n == 0:
		d.Fail(ErrShort)
		return 0
	case n < 0, n > 1 && d.Rest[n-1] == 0: // a last byte of 0 adds nothing
		d.Fail(ErrNumber)
		return 0
	}
	d.Rest = d.Rest[n:]
	return number
}

func (d *Decoder) int64() int64 {
	number := d.Uint64()
	half := int64(number >> 1)
	if number&1 != 0 {
		return ^half
	}
	return half
}

func (d *Decoder) int() int {
	number := d.int64()
	if int64(int(number)) != number { // on a 32-bit machine
		d.Fail(ErrNumber)
		return 0
	}
	return int(number)
}

func (d *Decoder) duration() time.Duration { return time.Duration(d.int64()) }

// time reads the seconds since 1970 and the nanoseconds of the last one.
func (d *Decoder) time() time.Time {
	seconds, part := d.int64(), d.Uint64()
	if part >= uint64(time.Second) {
		d.Fail(ErrNumber)
		return time.Time{}
	}
	return time.Unix(seconds, int64(part)).UTC()
}

func (d *Decoder) id() schema.ID {
	switch d.Uint8() {
	case 0:
		return schema.ID{}
	case 1:
		if b := d.next(uint64(len(schema.ID{}))); b != nil && schema.ID(b) != (schema.ID{}) {
			return schema.ID(b)
		}
	}
	d.Fail(errID)
	return schema.ID{}
}

// String reads a string, which shares the payload's memory.
func (d *Decoder) String() string { return StringOf(d.next(d.Uint64())) }

// Bytes returns nil for none. An append to the result does not write to what follows.
func (d *Decoder) Bytes() []byte {
	b := d.next(d.Uint64())
	if len(b) == 0 {
		return nil
	}
	return b[:len(b):len(b)]
}

// count reads the number of elements that follow, each of at least size bytes. It refuses a number
// for which the payload has no room, before anything is allocated.
func (d *Decoder) count(size int) int {
	count := d.Uint64()
	if count > uint64(len(d.Rest)/size) {
		d.Fail(ErrShort)
		return 0
	}
	return int(count)
}

func (d *Decoder) strings() []string {
	count := d.count(1)
	if count == 0 {
		return nil
	}
	list := make([]string, count)
	for i := range list {
		list[i] = d.String()
	}
	return list
}

func (d *Decoder) stringMap() map[string]string {
	count := d.count(2)
	if count == 0 {
		return nil
	}
	m := make(map[string]string, count)
	last := ""
	for i := range count {
		key := d.String()
		if i > 0 && key <= last {
			d.Fail(errOrder)
		}
		last = key
		m[key] = d.String()
	}
	return m
}
