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

// answer is an endpoint's response. The zero value is an empty 200.
type answer struct {
	status      int // 0 is 200
	header      http.Header
	contentType string // of body

	value any    // the body, as JSON, if it is not nil
	body  []byte // the body, if value and stream are nil

	// once is set for a value that must not be encoded twice, because it is costly or may change in
	// between. encode then streams it, even if it is short.
	once bool

	// stream writes the body, if it is not nil. When stream fails the connection ends, so that a
	// part is not taken for the whole. It need not have the whole body in memory.
	stream func(w io.Writer) error

	// read is set for the answer to a read, which tells whether there is a leader. index is then
	// the index of what was read, if it has one (B15). The answer to a write has neither.
	read  bool
	index uint64

	// unasked is set for a read that was refused before the database was asked, so that nothing
	// is known of the leader (T11).
	unasked bool
}

// ok returns an answer with the value as its body, in JSON.
func ok(value any) answer { return answer{value: value} }

// fill sets the headers of the answer. The caller has called encode before.
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

// write sends the answer. The caller has called encode before. write returns the error of the
// answer's stream.
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

// encode encodes the value, if there is one, as the JSON body. A body that is longer than a piece
// becomes a stream, which encodes the value again from the first byte.
func (a *answer) encode(form layout) {
	if a.value == nil {
		return
	}
	a.contentType = applicationJSON
	if succeeded, is := a.value.(bool); is && form == compact { // the answer to most writes
		a.body = strconv.AppendBool(nil, succeeded)
		return
	}
	value := a.value
	if !a.once {
		if body, err := encodeWhole(value, form); err == nil {
			a.body = body
			return
		}
	}
	a.stream = func(w io.Writer) error { return encodeTo(w, value, form) }
}

// asRead returns the answer as the answer to a read, with an index of at least 1.
func (a answer) asRead() answer {
	a.read, a.index = true, max(a.index, 1) // I10
	return a
}

// done returns the answer to a write: true, or false if err is refused. It returns other errors.
func done(err, refused error) (answer, error) {
	if err != nil && !errors.Is(err, refused) {
		return answer{}, err
	}
	return ok(err == nil), nil
}
