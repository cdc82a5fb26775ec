package consulapi

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"

	"github.com/lockd/lockd"
)

// Transport returns an http.RoundTripper that answers every request from the database, in process
// and without a socket, whatever host its URL names. Put into an http.Client, it connects any
// client of Consul to the database. A nil opts means the defaults.
//
// A request ends with its context, which a blocking query needs, and may be answered after its
// body was only partly read. The body of a long answer is made as it is read; it has to be closed,
// as that of any http.Response. It holds nothing that would have to be given back.
//
// It returns the errors of Handler.
func Transport(db *lockd.DB, opts *Options) (http.RoundTripper, error) {
	h, err := Handler(db, opts)
	if err != nil {
		return nil, err
	}
	return &transport{h}, nil
}

type transport struct{ handler http.Handler }

// RoundTrip answers a request. It returns the context's error if that ends first.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	in := r.WithContext(ctx)
	in.RequestURI = r.URL.RequestURI()
	in.Host = cmp.Or(r.Host, r.URL.Host)
	if in.Body == nil {
		in.Body = http.NoBody
	} else if in.ContentLength == 0 && in.Body != http.NoBody {
		in.ContentLength = -1 // to a client 0 means unknown
	}
	closeBody := sync.OnceFunc(func() { _ = in.Body.Close() }) // what it was good for is read
	out := &responder{request: r, header: make(http.Header), ready: make(chan struct{})}
	go func() {
		defer cancel()
		defer closeBody()
		defer func() { out.finish(recover()) }()
		t.handler.ServeHTTP(out, in)
	}()
	select {
	case <-out.ready:
	case <-r.Context().Done():
	}
	if err := r.Context().Err(); err != nil {
		closeBody() // the handler may be waiting for more of it
		return nil, err
	}
	return out.response, out.err
}

// maxBuffered is how much of an answer is kept for a client that does not read. What is not longer
// keeps no goroutine waiting.
const maxBuffered = 64 << 10

// responder is the http.ResponseWriter of one request. Only the goroutine of the handler uses it,
// but for what is made before ready is closed.
type responder struct {
	request *http.Request
	header  http.Header
	status  int
	buffer  bytes.Buffer
	pipe    *io.PipeWriter // set once the answer is longer than the buffer may be

	ready    chan struct{} // closed when there is a response or an error
	response *http.Response
	err      error
}

// Header returns the headers that the response will have.
func (w *responder) Header() http.Header { return w.header }

// WriteHeader sets the status of the response, once.
func (w *responder) WriteHeader(status int) { w.status = cmp.Or(w.status, status) }

// Write adds to the body. It blocks while the client does not read a long one.
func (w *responder) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.request.Method == http.MethodHead {
		return len(p), nil
	}
	if w.pipe != nil {
		return w.pipe.Write(p)
	}
	if w.buffer.Len()+len(p) <= maxBuffered {
		return w.buffer.Write(p)
	}
	reader, writer := io.Pipe()
	w.pipe = writer
	stop := context.AfterFunc(w.request.Context(), func() {
		_ = writer.CloseWithError(w.request.Context().Err()) // it never fails
	})
	begun := bytes.Clone(w.buffer.Bytes())
	w.respond(-1, &pipedBody{io.MultiReader(bytes.NewReader(begun), reader), reader, stop})
	return w.pipe.Write(p)
}

// pipedBody is the body of a response that is still being made.
type pipedBody struct {
	io.Reader
	pipe *io.PipeReader
	stop func() bool
}

// Close ends the making of the body.
func (b *pipedBody) Close() error {
	b.stop()
	return b.pipe.Close()
}

// finish ends the response; the cause is why the handler did not come to its end, if it did not.
func (w *responder) finish(cause any) {
	var err error
	if cause != nil {
		err = cmp.Or(w.request.Context().Err(), io.ErrUnexpectedEOF)
	}
	switch {
	case w.pipe != nil:
		_ = w.pipe.CloseWithError(err) // it never fails
	case err != nil:
		w.err = err
		close(w.ready)
	default:
		w.WriteHeader(http.StatusOK)
		w.respond(int64(w.buffer.Len()), io.NopCloser(&w.buffer))
	}
}

// respond makes the response.
func (w *responder) respond(length int64, body io.ReadCloser) {
	header := maps.Clone(w.header)
	maps.DeleteFunc(header, func(_ string, values []string) bool { return len(values) == 0 })
	w.response = &http.Response{
		Status:     fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)),
		StatusCode: w.status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        header,
		Body:          body,
		ContentLength: length,
		Request:       w.request,
	}
	close(w.ready)
}
