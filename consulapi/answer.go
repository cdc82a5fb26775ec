package consulapi

import (
	"errors"
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
	body  []byte // the body, if value and stream are nil

	// stream writes the body, if it is not nil. When it fails the connection ends, so that a part
	// is not taken for the whole. To call it does not need the whole body in memory.
	stream func(w io.Writer) error

	// read is set for the answer to a read, which tells of the leader; and index is then that of
	// what was read, if it has one (B15). A write has neither.
	read  bool
	index uint64

	// unasked is set for a read that was refused before the database was asked, so that nothing
	// is known of the leader (T11).
	unasked bool
}

// ok is the answer that Consul gives in JSON.
func ok(value any) answer { return answer{value: value} }

// fill sets the headers of the answer, which is encoded.
func (a *answer) fill(header http.Header) {
	maps.Copy(header, a.header)
	if a.read {
		header["X-Consul-Knownleader"] = []string{strconv.FormatBool(!a.unasked)}
		header["X-Consul-Lastcontact"] = []string{"0"}
	}
	if a.index > 0 {
		header["X-Consul-Index"] = []string{strconv.FormatUint(a.index, 10)}
	}
	if a.contentType != "" {
		header["Content-Type"] = []string{a.contentType}
	}
	if a.stream == nil {
		header["Content-Length"] = []string{strconv.Itoa(len(a.body))}
	}
}

// write sends the answer, which is encoded. It returns an error of its stream's.
func (a *answer) write(w http.ResponseWriter) error {
	header := w.Header()
	a.fill(header)
	if a.contentType == "" {
		header["Content-Type"] = nil // net/http would guess one
	}
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	if a.stream != nil {
		return a.stream(w)
	}
	_, _ = w.Write(a.body) // the client may be gone, which is its own affair
	return nil
}

// encode makes the body of the value, if there is one, as JSON. A body that is longer than a piece
// becomes a stream, which begins anew with the first byte.
func (a *answer) encode(form layout) {
	if a.value == nil {
		return
	}
	a.contentType = applicationJSON
	if succeeded, is := a.value.(bool); is && form == compact { // of most writes
		a.body = strconv.AppendBool(nil, succeeded)
		return
	}
	value := a.value
	body, err := encodeWhole(value, form)
	if err == nil {
		a.body = body
		return
	}
	a.stream = func(w io.Writer) error { return encodeTo(w, value, form) }
}

// asRead adds what all reads tell.
func (a answer) asRead() answer {
	a.read, a.index = true, max(a.index, 1) // I10
	return a
}

// done is the answer to a write: false if it was refused with the one error that is no failure.
func done(err, refused error) (answer, error) {
	if err != nil && (refused == nil || !errors.Is(err, refused)) {
		return answer{}, err
	}
	return ok(err == nil), nil
}
