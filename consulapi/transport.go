package consulapi

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/lockd/lockd"
)

// Transport returns an http.RoundTripper that answers every request from the database, in process
// and without a socket, whatever host its URL names. Put into an http.Client, it connects any
// client of Consul to the database. A nil opts means the defaults.
//
// A request and its response end with the request's context: cancel that to end a blocking query
// early. A request may be answered after its body was only partly read. The response body of a
// snapshot or a long list is produced as it is read. It has to be closed, like that of any
// http.Response. The RoundTripper holds nothing that has to be released.
//
// Transport returns the errors of Handler.
func Transport(db *lockd.DB, opts *Options) (http.RoundTripper, error) {
	r, err := newRouter(db, opts)
	if err != nil {
		return nil, fmt.Errorf("consulapi: %w", err)
	}
	return &transport{r}, nil
}

type transport struct{ router *router }

var errNoURL = fmt.Errorf("consulapi: %w: the request has no URL; http.NewRequest gives it one",
	lockd.ErrInvalid)

// RoundTrip answers a request. It returns the context's error if the context ends first, and
// ErrInvalid without a URL. A missing header or body counts as empty, a missing method as GET.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	in := r
	if r.Body == nil || r.Method == "" {
		in = r.WithContext(r.Context()) // a copy, for r is not to be changed
		in.Method = cmp.Or(r.Method, http.MethodGet)
		if r.Body == nil {
			in.Body = http.NoBody
		}
	}
	refusal := r.Context().Err()
	if r.URL == nil {
		refusal = errNoURL
	}
	if refusal != nil {
		_ = in.Body.Close() // nothing of it is needed
		return nil, refusal
	}
	a, err := t.answer(in)
	if ended := r.Context().Err(); ended != nil {
		return nil, ended
	}
	if err != nil {
		return nil, io.ErrUnexpectedEOF
	}
	if a.stream != nil {
		return t.stream(r, &a)
	}
	if r.Method == http.MethodHead {
		a.body = nil
	}
	body := &wholeBody{ctx: r.Context()}
	body.rest.Reset(a.body)
	return respond(r, &a, body.rest.Size(), body), nil
}

// answer lets the router answer, and closes the body. When the context ends, a GET that waits ends
// by itself, but a commit or the reading of a body does not. So answer runs any other request in a
// goroutine, and leaves that behind when the context ends.
func (t *transport) answer(r *http.Request) (answer, error) {
	if r.Context().Done() == nil || r.Method == http.MethodGet {
		defer r.Body.Close()
		return t.router.serve(r)
	}
	closeBody := sync.OnceFunc(func() { _ = r.Body.Close() }) // all that is needed of it is read
	type outcome struct {
		answer
		err error
	}
	outcomes := make(chan outcome, 1)
	go func() {
		defer close(outcomes) // reading the body may end the goroutine
		defer closeBody()
		a, err := t.router.serve(r)
		outcomes <- outcome{a, err}
	}()
	select {
	case o, told := <-outcomes:
		if !told {
			return answer{}, io.ErrUnexpectedEOF
		}
		return o.answer, o.err
	case <-r.Context().Done():
		closeBody() // the router may be waiting for more of it
		return answer{}, r.Context().Err()
	}
}

// wholeBody is the body of a response that is complete. Like any other body it ends with the
// context of its request.
type wholeBody struct {
	ctx  context.Context
	rest bytes.Reader
}

// Read reads what is left, or returns the context's error.
func (b *wholeBody) Read(p []byte) (int, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.rest.Read(p)
}

// WriteTo writes what is left, without a buffer between, or returns the context's error.
func (b *wholeBody) WriteTo(w io.Writer) (int64, error) {
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.rest.WriteTo(w)
}

// Close does nothing: there is nothing to give back.
func (b *wholeBody) Close() error { return nil }

// maxBuffered is the size of the buffer on each side of the pipe of a stream. A stream that is not
// longer keeps no goroutine waiting.
const maxBuffered = 64 << 10

// stream returns a response whose body a new goroutine produces as it is read. It returns an error
// if the stream fails before the first byte.
func (t *transport) stream(r *http.Request, a *answer) (*http.Response, error) {
	ctx := r.Context()
	reader, writer := io.Pipe()
	stop := context.AfterFunc(ctx, func() {
		_ = writer.CloseWithError(ctx.Err()) // it never fails
	})
	go func() {
		defer stop()
		buffer := bufio.NewWriterSize(writer, maxBuffered)
		err := t.router.guard(r, func() error { return a.stream(buffer) })
		if err == nil {
			err = buffer.Flush()
		}
		if err != nil {
			err = cmp.Or(ctx.Err(), io.ErrUnexpectedEOF)
		}
		_ = writer.CloseWithError(err) // it never fails
	}()
	body := &streamedBody{bufio.NewReaderSize(reader, maxBuffered), reader}
	if _, err := body.Peek(1); err != nil && err != io.EOF {
		return nil, err
	}
	return respond(r, a, -1, body), nil
}

// streamedBody is the body of a response that is still being produced.
type streamedBody struct {
	*bufio.Reader
	pipe *io.PipeReader
}

// Close makes the goroutine that produces the body stop.
func (b *streamedBody) Close() error { return b.pipe.Close() }

// respond makes the response to r.
func respond(r *http.Request, a *answer, length int64, body io.ReadCloser) *http.Response {
	status := cmp.Or(a.status, http.StatusOK)
	header := make(http.Header, 4)
	a.fill(header)
	return &http.Response{
		Status:     strconv.Itoa(status) + " " + http.StatusText(status),
		StatusCode: status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        header,
		Body:          body,
		ContentLength: length,
		Request:       r,
	}
}
