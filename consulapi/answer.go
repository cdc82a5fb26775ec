package consulapi

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strconv"
)

const (
	textPlain       = "text/plain; charset=utf-8"
	applicationJSON = "application/json"
)

// answer is what an endpoint has to say. The zero value is an empty 200.
type answer struct {
	status      int // 0 is 200
	header      http.Header
	contentType string // of body

	value any    // the body, as JSON, if it is not nil
	body  []byte // the body, if value is nil

	// stream writes the body, if it is not nil. When it fails the connection ends, so that a part
	// is not taken for the whole.
	stream func(w io.Writer) error

	// read is set for the answer to a read, which tells of the leader; and index is then that of
	// what was read, if it has one (B15). A write has neither.
	read  bool
	index uint64

	// unasked is set for a read that was refused before the database was asked, so that nothing
	// is known of the leader (T11).
	unasked bool

	// absent says that the one thing that was asked for is not there: to wait for it is not
	// disturbed by its being touched and still not there (B8).
	absent bool
}

// ok is the answer that Consul gives in JSON.
func ok(value any) answer { return answer{value: value} }

// write sends the answer.
func (a answer) write(w http.ResponseWriter, r *request) {
	header := w.Header()
	maps.Copy(header, a.header)
	if a.read {
		header.Set("X-Consul-KnownLeader", strconv.FormatBool(!a.unasked))
		header.Set("X-Consul-LastContact", "0")
	}
	if a.index > 0 {
		header.Set("X-Consul-Index", strconv.FormatUint(a.index, 10))
	}
	if a.value != nil {
		a.contentType = applicationJSON
		a.body = encode(a.value, r)
	}
	if r != nil {
		r.answered = true
	}
	if a.contentType != "" {
		header.Set("Content-Type", a.contentType)
	} else if len(a.body) == 0 && a.stream == nil {
		header["Content-Type"] = nil // net/http would guess one
	}
	if a.stream == nil {
		header.Set("Content-Length", strconv.Itoa(len(a.body)))
	}
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	if a.stream == nil {
		_, _ = w.Write(a.body) // the client may be gone, which is its own affair
		return
	}
	if err := a.stream(w); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// encode returns the value as JSON, indented if ?pretty asks for it.
func encode(value any, r *request) []byte {
	if r != nil && r.has("pretty") {
		text, err := json.MarshalIndent(value, "", "    ")
		if err != nil {
			panic("consulapi: bug: " + err.Error())
		}
		return append(text, '\n')
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic("consulapi: bug: " + err.Error())
	}
	return text
}
