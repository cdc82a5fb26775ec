package consulapi

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lockd/lockd"
)

// The state in a Consul snapshot is MessagePack in the form that it had before text and bytes got
// separate types: both are raw. lockd writes that form, and reads every form.
const (
	packNil     = 0xc0
	packFalse   = 0xc2
	packTrue    = 0xc3
	packBin8    = 0xc4
	packBin32   = 0xc6
	packUint8   = 0xcc
	packUint64  = 0xcf
	packInt8    = 0xd0
	packInt64   = 0xd3
	packFixExt1 = 0xd4
	packRaw8    = 0xd9
	packRaw16   = 0xda
	packRaw32   = 0xdb
	packArray16 = 0xdc
	packArray32 = 0xdd
	packMap16   = 0xde
	packMap32   = 0xdf
)

// appendPacked appends the value. It panics if the type is none of those below.
func appendPacked(b []byte, value any) []byte {
	switch value := value.(type) {
	case nil:
		return append(b, packNil)
	case int:
		if value < 0 {
			return binary.BigEndian.AppendUint64(append(b, packInt64), uint64(value))
		}
		return appendPacked(b, uint64(value))
	case uint64:
		if value <= math.MaxInt8 {
			return append(b, byte(value))
		}
		return binary.BigEndian.AppendUint64(append(b, packUint64), value)
	case string:
		return append(appendHead(b, 0xa0, 31, packRaw16, len(value)), value...)
	case []byte:
		return append(appendHead(b, 0xa0, 31, packRaw16, len(value)), value...)
	case []string:
		b = appendHead(b, 0x90, 15, packArray16, len(value))
		for _, text := range value {
			b = appendPacked(b, text)
		}
		return b
	case object:
		b = appendHead(b, 0x80, 15, packMap16, len(value))
		for _, m := range value {
			b = appendPacked(appendPacked(b, m.name), m.value)
		}
		return b
	case map[string]string:
		b = appendHead(b, 0x80, 15, packMap16, len(value))
		for _, name := range slices.Sorted(maps.Keys(value)) { // one state gives the same bytes
			b = appendPacked(appendPacked(b, name), value[name])
		}
		return b
	}
	panic(fmt.Sprintf("consulapi: bug: a %T in a snapshot", value))
}

// appendHead appends the head of a value with a length: one byte if the length is at most short,
// else form16 and 16 bits, or the form after form16 and 32 bits.
func appendHead(b []byte, fixed byte, short int, form16 byte, length int) []byte {
	switch {
	case length <= short:
		return append(b, fixed|byte(length))
	case length <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, form16), uint16(length))
	}
	return binary.BigEndian.AppendUint32(append(b, form16+1), uint32(length))
}

// unpacker reads MessagePack. It trusts no length that it reads.
type unpacker struct{ from *bufio.Reader }

// unpacked is the kind of a value.
type unpacked uint8

const (
	unpackedNil unpacked = iota
	unpackedNumber
	unpackedBytes
	unpackedList
	unpackedObject
	unpackedOther // whose payload has been skipped
)

func misfit(wanted string, head byte) error {
	return fmt.Errorf("%w: state.bin: %s where %#x is", lockd.ErrCorrupt, wanted, head)
}

// cutOff returns ErrCorrupt for an end in the middle of a value, and any other err as it is.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: state.bin is cut off", lockd.ErrCorrupt)
	}
	return err
}

// uint reads a number of size bytes.
func (u *unpacker) uint(size int) (n uint64, err error) {
	for range size {
		c, err := u.from.ReadByte()
		if err != nil {
			return 0, cutOff(err)
		}
		n = n<<8 | uint64(c)
	}
	return n, nil
}

// head reads the head of a value. It returns the kind of the value, and n: the number itself, or
// how many bytes, elements or members follow.
func (u *unpacker) head() (kind unpacked, n uint64, head byte, err error) {
	if head, err = u.from.ReadByte(); err != nil {
		return 0, 0, 0, cutOff(err)
	}
	sized := func(k unpacked, size int) (unpacked, uint64, byte, error) {
		n, err := u.uint(size)
		return k, n, head, err
	}
	switch {
	case head <= math.MaxInt8:
		return unpackedNumber, uint64(head), head, nil
	case head <= 0x8f:
		return unpackedObject, uint64(head & 0xf), head, nil
	case head <= 0x9f:
		return unpackedList, uint64(head & 0xf), head, nil
	case head <= 0xbf:
		return unpackedBytes, uint64(head & 0x1f), head, nil
	case head == packNil:
		return unpackedNil, 0, head, nil
	case head == packFalse, head == packTrue:
		return unpackedNumber, uint64(head - packFalse), head, nil
	case head >= packBin8 && head <= packBin32:
		return sized(unpackedBytes, 1<<(head-packBin8))
	case head >= packUint8 && head <= packUint64:
		return sized(unpackedNumber, 1<<(head-packUint8))
	case head >= packInt8 && head <= packInt64:
		size := 1 << (head - packInt8)
		n, err := u.uint(size)
		unused := 64 - 8*size
		return unpackedNumber, uint64(int64(n<<unused) >> unused), head, err
	case head >= packRaw8 && head <= packRaw32:
		return sized(unpackedBytes, 1<<(head-packRaw8))
	case head == packArray16, head == packArray32:
		return sized(unpackedList, 2<<(head-packArray16))
	case head == packMap16, head == packMap32:
		return sized(unpackedObject, 2<<(head-packMap16))
	case head >= 0xe0:
		return unpackedNumber, uint64(int64(int8(head))), head, nil
	}
	return unpackedOther, 0, head, u.skipOther(head)
}

// skipOther skips what follows the head of a float or an extension.
func (u *unpacker) skipOther(head byte) error {
	var length uint64
	var err error
	switch {
	case head == 0xca, head == 0xcb: // floats
		length = 4 << (head - 0xca)
	case head >= 0xc7 && head <= 0xc9: // extensions with a length
		length, err = u.uint(1 << (head - 0xc7))
		length++
	case head >= packFixExt1 && head < packRaw8:
		length = 1 + 1<<(head-packFixExt1)
	default:
		return misfit("a value", head)
	}
	if err == nil {
		err = u.discard(length)
	}
	return err
}

func (u *unpacker) discard(n uint64) error {
	_, err := io.CopyN(io.Discard, u.from, int64(n)) // n is at most 1<<32
	return cutOff(err)
}

// skip reads a value of any kind, whatever it has inside, and drops it.
func (u *unpacker) skip() error {
	for left := uint64(1); left > 0; left-- {
		kind, n, _, err := u.head()
		switch {
		case err != nil:
			return err
		case kind == unpackedBytes:
			err = u.discard(n)
		case kind == unpackedList:
			left += n
		case kind == unpackedObject:
			left += 2 * n
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// number reads a number or a bool; nil is 0.
func (u *unpacker) number(into *uint64) error {
	kind, n, head, err := u.head()
	if err == nil && kind != unpackedNil && kind != unpackedNumber {
		err = misfit("a number", head)
	}
	*into = n
	return err
}

// text reads a text or bytes; nil is empty.
func (u *unpacker) text(into *string) error {
	kind, n, head, err := u.head()
	if err == nil && kind != unpackedNil && kind != unpackedBytes {
		err = misfit("a text", head)
	}
	if err != nil {
		return err
	}
	var read strings.Builder // grows with what is there, not with what is claimed
	_, err = io.CopyN(&read, u.from, int64(n))
	*into = read.String()
	return cutOff(err)
}

// texts reads a list of texts; nil is an empty one.
func (u *unpacker) texts(into *[]string) error {
	kind, n, head, err := u.head()
	if err == nil && kind != unpackedNil && kind != unpackedList {
		err = misfit("a list", head)
	}
	for ; err == nil && n > 0; n-- {
		var text string
		err = u.text(&text)
		*into = append(*into, text)
	}
	return err
}

// object reads an object, and calls read for each member, which has to read or skip the member's
// value. nil is an empty object.
func (u *unpacker) object(read func(name string) error) error {
	kind, n, head, err := u.head()
	if err == nil && kind != unpackedNil && kind != unpackedObject {
		err = misfit("an object", head)
	}
	for ; err == nil && n > 0; n-- {
		var name string
		if err = u.text(&name); err == nil {
			err = read(name)
		}
	}
	return err
}

// textObject reads an object whose values are texts.
func (u *unpacker) textObject(into *map[string]string) error {
	return u.object(func(name string) error {
		if *into == nil {
			*into = make(map[string]string)
		}
		var text string
		err := u.text(&text)
		(*into)[name] = text
		return err
	})
}

// members reads an object. The value of a member that wanted names goes to where wanted says: into
// the variable that is pointed to, or to a function that reads it. Any other member is skipped.
// members reports whether the object has any; nil has none.
func (u *unpacker) members(wanted object) (there bool, err error) {
	err = u.object(func(name string) error {
		there = true
		at := slices.IndexFunc(wanted, func(f field) bool { return f.name == name })
		if at < 0 {
			return u.skip()
		}
		switch into := wanted[at].value.(type) {
		case *uint64:
			return u.number(into)
		case *string:
			return u.text(into)
		case *[]string:
			return u.texts(into)
		case *map[string]string:
			return u.textObject(into)
		case func() error:
			return into()
		}
		panic(fmt.Sprintf("consulapi: bug: a %T for a member", wanted[at].value))
	})
	return there, err
}
