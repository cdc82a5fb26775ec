package consulapi

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"slices"
)

// pieceSize is how many bytes of an answer are encoded before they are sent. An answer that is not
// longer is encoded whole, with its length; a longer answer is never in memory as a whole.
const pieceSize = 32 << 10

// layout is how JSON is laid out.
type layout uint8

const (
	compact layout = iota
	pretty         // indented by four spaces a level, with a newline at the end
)

// piecewise is a value that is encoded in pieces. Encoding it twice gives the same bytes, unless
// answer.once is set.
type piecewise interface{ encode(e *encoder) }

// encoder encodes JSON in pieces.
type encoder struct {
	w   io.Writer // nil: at most one piece is encoded
	buf []byte    // what is encoded and not yet written
	err error     // errLong, or w's first error; nothing is encoded after it

	indent *indenter // nil: compact
}

// errLong says that the JSON is longer than a piece. It never leaves the package.
var errLong = errors.New("longer than a piece")

// encodeWhole returns the value as JSON, or errLong.
func encodeWhole(v any, form layout) ([]byte, error) {
	e := newEncoder(nil, form)
	e.document(v)
	return e.buf, e.err
}

// encodeTo writes the value as JSON in pieces.
func encodeTo(w io.Writer, v any, form layout) error {
	e := newEncoder(w, form)
	e.buf = make([]byte, 0, pieceSize+1)
	e.document(v)
	e.flush()
	return e.err
}

func newEncoder(w io.Writer, form layout) *encoder {
	e := &encoder{w: w}
	if form == pretty {
		e.indent = &indenter{}
	}
	return e
}

// document adds a value that stands alone.
func (e *encoder) document(v any) {
	e.value(v)
	if e.indent != nil {
		e.buf = append(e.buf, '\n')
	}
}

// raw adds a text that is JSON, or a part of it.
func (e *encoder) raw(text string) { add(e, text) }

func add[T string | []byte](e *encoder, text T) {
	if e.indent != nil {
		for i := 0; i < len(text) && e.err == nil; i++ {
			e.buf = e.indent.append(e.buf, text[i])
			e.limit()
		}
		return
	}
	for len(text) > 0 && e.err == nil {
		n := min(len(text), pieceSize+1-len(e.buf))
		e.buf = append(e.buf, text[:n]...)
		e.limit()
		text = text[n:]
	}
}

// limit flushes a buf that is longer than a piece, or fails if there is no writer.
func (e *encoder) limit() {
	switch {
	case len(e.buf) <= pieceSize:
	case e.w == nil:
		e.err = errLong
	default:
		e.flush()
	}
}

func (e *encoder) flush() {
	if e.err == nil && len(e.buf) > 0 {
		_, e.err = e.w.Write(e.buf)
		e.buf = e.buf[:0]
	}
}

// value adds a value: a piecewise value in pieces, any other as a whole.
func (e *encoder) value(v any) {
	if parts, is := v.(piecewise); is {
		parts.encode(e)
		return
	}
	add(e, marshal(v))
}

// marshal returns a value of this package as JSON.
func marshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("consulapi: bug: " + err.Error())
	}
	return text
}

// longBytes are encoded in pieces, as json.Marshal encodes a []byte that is not nil.
type longBytes []byte

func (p longBytes) encode(e *encoder) {
	const step = 3 << 10 // whole groups of base64
	var text []byte
	e.raw(`"`)
	for len(p) > 0 && e.err == nil {
		n := min(step, len(p))
		text = base64.StdEncoding.AppendEncode(text[:0], p[:n])
		add(e, text)
		p = p[n:]
	}
	e.raw(`"`)
}

// list is an array whose elements are produced one after the other.
type list[T any] iter.Seq[T]

// listOf returns a list of the elements.
func listOf[T any](elements ...T) list[T] { return list[T](slices.Values(elements)) }

// listed returns a list of what show returns for each wanted row.
func listed[R, V any](rows iter.Seq[R], wanted func(R) bool, show func(R) V) list[V] {
	return func(yield func(V) bool) {
		for row := range rows {
			if wanted(row) && !yield(show(row)) {
				return
			}
		}
	}
}

// all is the argument wanted of listed for a list of all rows.
func all[R any](R) bool { return true }

// isEmpty reports whether the list has no element.
func (l list[T]) isEmpty() bool {
	for range l {
		return false
	}
	return true
}

func (l list[T]) encode(e *encoder) {
	e.raw("[")
	separator := ""
	for v := range l {
		e.raw(separator)
		e.value(v)
		if e.err != nil {
			return
		}
		separator = ","
	}
	e.raw("]")
}

// mapping is an object whose members are produced one after the other. Their names differ, and come
// in ascending order, as json.Marshal orders a map.
type mapping[V any] iter.Seq2[string, V]

func (m mapping[V]) encode(e *encoder) {
	e.raw("{")
	separator := ""
	for name, v := range m {
		e.raw(separator)
		e.value(name)
		e.raw(":")
		e.value(v)
		if e.err != nil {
			return
		}
		separator = ","
	}
	e.raw("}")
}

// object is an object whose members come in this order.
type object []field

// field is a member of an object. In JSON its value may be piecewise.
type field struct {
	name  string
	value any
}

func (o object) encode(e *encoder) {
	mapping[any](func(yield func(string, any) bool) {
		for _, f := range o {
			if !yield(f.name, f.value) {
				return
			}
		}
	}).encode(e)
}

// indenter indents compact JSON as json.MarshalIndent does, byte by byte.
type indenter struct {
	depth    int
	opened   bool // the last byte has opened an array or an object
	inString bool
	escaped  bool // the last byte of the string is a backslash that escapes the next one
}

// append appends the next byte, and the white space that belongs to it.
func (n *indenter) append(to []byte, c byte) []byte {
	if n.inString {
		n.inString = n.escaped || c != '"'
		n.escaped = !n.escaped && c == '\\'
		return append(to, c)
	}
	closes := c == ']' || c == '}'
	switch {
	case n.opened && !closes:
		n.depth++
		to = n.newline(to)
	case !n.opened && closes:
		n.depth--
		to = n.newline(to)
	}
	n.opened = c == '[' || c == '{'
	n.inString = c == '"'
	to = append(to, c)
	switch c {
	case ',':
		to = n.newline(to)
	case ':':
		to = append(to, ' ')
	}
	return to
}

func (n *indenter) newline(to []byte) []byte {
	to = append(to, '\n')
	for range n.depth {
		to = append(to, "    "...)
	}
	return to
}
