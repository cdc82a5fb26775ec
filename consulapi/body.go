package consulapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// readBody returns the whole body, whether it is chunked or not (X16), or an error if the body is
// longer than the limit. The error's text points to help, if that is not empty.
func (r *request) readBody(limit int, help string) ([]byte, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return nil, nil
	}
	tooLarge := func(size string) error {
		if help != "" {
			help = " See " + help + "."
		}
		r.drain(limit + 1)
		return refuse(http.StatusRequestEntityTooLarge,
			"Request body%s too large, max size: %d bytes.%s", size, limit, help)
	}
	if r.ContentLength > int64(limit) {
		return nil, tooLarge(fmt.Sprintf("(%d bytes)", r.ContentLength))
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, int64(limit)+1))
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong || len(body) > limit {
		return nil, tooLarge("")
	}
	if err == nil && int64(len(body)) < r.ContentLength { // net/http's server reports it itself
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, badRequest("read body: %v", err)
	}
	return body, nil
}

// drain reads up to most bytes of a refused body: a client that is still writing when the
// connection is closed may never see the answer. One that sends Expect sees it before it writes.
func (r *request) drain(most int) {
	if r.Body != nil && r.Header.Get("Expect") == "" {
		_, _ = io.CopyN(io.Discard, r.Body, int64(most)) // it is refused either way
	}
}

// decoder returns a decoder of the body, which is read whole.
func (h *handler) decoder(r *request, help string) (*json.Decoder, error) {
	text, err := r.readBody(h.opts.MaxValueSize, help)
	return json.NewDecoder(bytes.NewReader(text)), err
}

// decode decodes the body. It ignores unknown members, and what follows the first value.
func (h *handler) decode(r *request, body any) error {
	decoder, err := h.decoder(r, "")
	if err != nil {
		return err
	}
	return undecoded(decoder.Decode(body))
}

// decodeStrictly is decode, but refuses a body that has an unknown member.
func (h *handler) decodeStrictly(r *request, body any) error {
	decoder, err := h.decoder(r, "")
	if err != nil {
		return err
	}
	decoder.DisallowUnknownFields()
	return undecoded(decoder.Decode(body))
}

// undecoded returns the error for a body that could not be decoded, or nil if err is nil.
func undecoded(err error) error {
	if err == nil {
		return nil
	}
	return badRequest("Request decode failed: %v", plainly(err))
}

// plainly returns why a body could not be decoded, without the names of Go's types, which mean
// nothing to a client.
func plainly(err error) error {
	var misfit *json.UnmarshalTypeError
	switch {
	case !errors.As(err, &misfit):
		return err
	case misfit.Field == "":
		return fmt.Errorf("json: cannot unmarshal %s at byte %d", misfit.Value, misfit.Offset)
	}
	return fmt.Errorf("json: cannot unmarshal %s into %s", misfit.Value, misfit.Field)
}
