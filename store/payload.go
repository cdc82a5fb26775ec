package store

import (
	"encoding/binary"
	"errors"
	"github.com/lockd/lockd/internal/schema"
	"maps"
	"slices"
	"time"
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

// ErrCorrupt is returned when the file is damaged: it is empty or cut off, its pages do not fit
// together, or a row is not what was written. Restore a backup. A commit that comes upon such
// damage returns it too.
var ErrCorrupt = errors.New("file is damaged")

// What a decoder finds wrong.
var (
	errChecksum  = errors.New("its checksum does not match")
	errShort     = errors.New("it ends too early")
	errLong      = errors.New("it goes on after its end")
	errNumber    = errors.New("it has a number that is too large, or longer than it need be")
	errID        = errors.New("it has a session ID of an unknown form")
	errOrder     = errors.New("it has a map whose keys are out of order")
	errKeyLength = errors.New("its key has the wrong length")
	errPlace     = errors.New("it is not where a row with its content lies")
	errTwice     = errors.New("it is there twice, in two places")
)

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

func appendID(buf []byte, id schema.ID) []byte {
	if id == (schema.ID{}) {
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

// time reads the seconds since 1970 and the nanoseconds of the last one.
func (d *decoder) time() time.Time {
	seconds, part := d.int64(), d.uint64()
	if part >= uint64(time.Second) {
		d.fail(errNumber)
		return time.Time{}
	}
	return time.Unix(seconds, int64(part)).UTC()
}

func (d *decoder) id() schema.ID {
	switch d.uint8() {
	case 0:
		return schema.ID{}
	case 1:
		if b := d.next(uint64(len(schema.ID{}))); b != nil && schema.ID(b) != (schema.ID{}) {
			return schema.ID(b)
		}
	}
	if d.err == nil {
		d.fail(errID)
	}
	return schema.ID{}
}

func (d *decoder) string() string { return stringOf(d.next(d.uint64())) }

// bytes returns nil for none. Who appends to it does not write to what follows.
func (d *decoder) bytes() []byte {
	b := d.next(d.uint64())
	if len(b) == 0 {
		return nil
	}
	return b[:len(b):len(b)]
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
