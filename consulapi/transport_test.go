package consulapi_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

// client returns an http.Client that is connected to the database.
func (h *harness) client(opts *consulapi.Options) *http.Client {
	h.t.Helper()
	transport, err := consulapi.Transport(h.db, opts)
	h.must(err)
	return &http.Client{Transport: transport}
}

// do sends a request to an address that does not exist, and returns the response.
func (h *harness) do(
	ctx context.Context, client *http.Client, target string, body io.Reader,
) (*http.Response, error) {
	h.t.Helper()
	method, path, _ := strings.Cut(target, " ")
	r, err := http.NewRequestWithContext(ctx, method, "http://consul.invalid:8500"+path, body)
	h.must(err)
	return client.Do(r)
}

// wantDone sends a request and fails the test unless status and body are these.
func (h *harness) wantDone(client *http.Client, target, body string, code int, text string) {
	h.t.Helper()
	r, err := h.do(h.t.Context(), client, target, strings.NewReader(body))
	h.must(err)
	got, err := io.ReadAll(r.Body)
	h.must(err)
	h.must(r.Body.Close())
	if r.StatusCode != code || string(got) != text || r.ContentLength != int64(len(text)) {
		h.t.Errorf("%s: %s %q, length %d", target, r.Status, got, r.ContentLength)
	}
}

// Ensure that a client works through the transport as it does through a socket.
func TestTransport(t *testing.T) {
	run(t, nil, func(h *harness) {
		client := h.client(nil)
		h.wantDone(client, "PUT /v1/kv/a%2Fb%25?flags=1", "v", 200, "true")
		h.wantDone(client, "GET /v1/kv/a/b%25?raw", "", 200, "v")
		h.wantDone(client, "PUT /v1/kv//a/../b", "w", 200, "true")
		h.wantDone(client, "GET /v1/kv/?keys", "", 200, `["/a/../b","a/b%"]`)
		h.wantDone(client, "DELETE /v1/kv//a/../b", "", 200, "true")
		h.wantDone(client, "GET /v1/kv/none", "", 404, "")
		h.wantDone(client, "HEAD /v1/kv/none", "", 405, "")
		r, err := h.do(h.t.Context(), client, "GET /v1/kv/a%2Fb%25", nil)
		h.must(err)
		defer r.Body.Close()
		if n, err := io.Copy(io.Discard, r.Body); err != nil || n != r.ContentLength || n == 0 {
			t.Errorf("copied %d bytes of %d, %v", n, r.ContentLength, err)
		}
		if r.Status != "200 OK" || r.Header.Get("X-Consul-Index") == "" || r.Request == nil ||
			r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %v", r.Status, r.Header)
		}
	})
}

// Ensure that a nil database is refused at once, with a text that says so.
func TestTransport_NilPanics(t *testing.T) {
	defer func() {
		if text, _ := recover().(string); text != "lockd: nil database" {
			t.Errorf("panic: got %q", text)
		}
	}()
	_, _ = consulapi.Transport(nil, nil)
}

// Ensure that bad options give no transport.
func TestTransport_ErrInvalid(t *testing.T) {
	run(t, nil, func(h *harness) {
		transport, err := consulapi.Transport(h.db, &consulapi.Options{MinTTL: -1})
		if !errors.Is(err, lockd.ErrInvalid) || transport != nil {
			t.Errorf("%v, %v", transport, err)
		}
	})
}

// closing is a body that notes that it was closed.
type closing struct {
	strings.Reader
	closed bool
}

func (b *closing) Close() error { b.closed = true; return nil }

// Ensure that a hand-made request without a URL is refused, with its body closed, and that a
// request is answered if it lacks only what may be missing.
func TestTransport_BareRequest(t *testing.T) {
	run(t, nil, func(h *harness) {
		transport, err := consulapi.Transport(h.db, nil)
		h.must(err)
		body := new(closing)
		for _, r := range []*http.Request{
			{}, {Method: http.MethodPut}, {Method: http.MethodPut, Body: body},
		} {
			got, err := transport.RoundTrip(r)
			if got != nil || !errors.Is(err, lockd.ErrInvalid) ||
				!strings.Contains(err.Error(), "the request has no URL") {
				t.Errorf("got %v, %v", got, err)
			}
		}
		if !body.closed {
			t.Error("the body is open")
		}
		_, err = h.db.Put("k", []byte("v"), nil)
		h.must(err)
		for _, method := range []string{"", http.MethodGet} {
			for _, body := range []io.ReadCloser{nil, http.NoBody, new(closing)} {
				r := &http.Request{
					Method: method, URL: &url.URL{Path: "/v1/kv/k", RawQuery: "raw"}, Body: body,
				}
				got, err := transport.RoundTrip(r)
				h.must(err)
				text, err := io.ReadAll(got.Body)
				h.must(err)
				if got.StatusCode != http.StatusOK || string(text) != "v" || r.Method != method {
					t.Errorf("method %q, body %v: got %s %s", method, body, got.Status, text)
				}
				if b, is := body.(*closing); is && !b.closed {
					t.Errorf("method %q: the body is open", method)
				}
			}
		}
	})
}

// Ensure that a blocking query ends with the context of its request, and frees its wait.
func TestTransport_BlockingQueryEndsWithItsContext(t *testing.T) {
	run(t, nil, func(h *harness) {
		client := h.client(&consulapi.Options{MaxBlocked: 1})
		for range 3 {
			ctx, cancel := context.WithCancel(h.t.Context())
			ended := make(chan error, 1)
			go func() {
				_, err := h.do(ctx, client, "GET /v1/kv/a?index=1", nil)
				ended <- err
			}()
			h.settle()
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			h.settle()
		}
		client.Timeout = time.Second // of the bubble's clock
		if _, err := h.do(h.t.Context(), client, "GET /v1/kv/a?index=1", nil); err == nil {
			t.Error("the client's timeout did not end the query")
		}
	})
}

// slowBody is a body that does not end until it is closed.
type slowBody struct{ closed chan struct{} }

func (b slowBody) Read([]byte) (int, error) {
	<-b.closed
	return 0, io.ErrClosedPipe
}

func (b slowBody) Close() error {
	close(b.closed)
	return nil
}

// Ensure that a request whose body does not come ends with its context, and that its body is closed
// then.
func TestTransport_SlowBody(t *testing.T) {
	run(t, nil, func(h *harness) {
		ctx, cancel := context.WithTimeout(h.t.Context(), time.Second)
		defer cancel()
		body := slowBody{make(chan struct{})}
		_, err := h.do(ctx, h.client(nil), "PUT /v1/kv/a", body)
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		<-body.closed
		h.settle()
		h.want("GET /v1/kv/a", "", 404, "")
	})
}

// Ensure that a body that ends before its length is not taken for the whole.
func TestTransport_BodyIsCutOff(t *testing.T) {
	run(t, nil, func(h *harness) {
		transport, err := consulapi.Transport(h.db, nil)
		h.must(err)
		for _, body := range []string{"", "a", "abc"} {
			r, err := http.NewRequestWithContext(h.t.Context(), "PUT", "http://consul/v1/kv/a",
				io.NopCloser(strings.NewReader(body)))
			h.must(err)
			r.ContentLength = 3
			got, err := transport.RoundTrip(r)
			h.must(err)
			h.must(got.Body.Close())
			_, stored := h.db.Get("a")
			if whole := len(body) == 3; stored != whole || (got.StatusCode == 200) != whole {
				t.Errorf("%q: %s, stored: %t", body, got.Status, stored)
			}
		}
	})
}

// Ensure that a body is closed if the handler does not read it.
func TestTransport_ClosesTheBody(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, target := range []string{"GET /v1/kv/a", "DELETE /v1/kv/a"} {
			body := slowBody{make(chan struct{})}
			r, err := h.do(h.t.Context(), h.client(nil), target, body)
			h.must(err)
			h.must(r.Body.Close())
			<-body.closed
		}
	})
}

// Ensure that the body of a long answer comes whole, and can be given up.
func TestTransport_LongAnswer(t *testing.T) {
	run(t, nil, func(h *harness) {
		client := h.client(nil)
		random := make([]byte, 512<<10) // so that a snapshot does not shorten it
		_, err := rand.NewChaCha8([32]byte{}).Read(random)
		h.must(err)
		large := string(random)
		h.wantDone(client, "PUT /v1/kv/a", large, 200, "true")
		for _, target := range []string{"GET /v1/kv/a?raw", "GET /v1/snapshot"} {
			r, err := h.do(h.t.Context(), client, target, nil)
			h.must(err)
			whole, err := io.ReadAll(r.Body)
			h.must(err)
			h.must(r.Body.Close())
			got := string(whole)
			if r.Header.Get("Content-Type") == "application/x-gzip" {
				got, err = unzip(got)
				h.must(err)
			}
			if !strings.Contains(got, large) {
				t.Errorf("%s: %d bytes", target, len(whole))
			}

			r, err = h.do(h.t.Context(), client, target, nil)
			h.must(err)
			_, err = io.ReadFull(r.Body, make([]byte, 100_000))
			h.must(err)
			h.must(r.Body.Close())

			ctx, cancel := context.WithCancel(h.t.Context())
			r, err = h.do(ctx, client, target, nil)
			h.must(err)
			cancel()
			h.settle()
			if _, err = io.ReadAll(r.Body); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", target, err)
			}
			h.must(r.Body.Close())
		}
	})
}

// Ensure that a panic costs one request here too.
func TestTransport_Panic(t *testing.T) {
	run(t, nil, func(h *harness) {
		client := h.client(&consulapi.Options{Logger: slog.New(slog.DiscardHandler)})
		r, err := h.do(h.t.Context(), client, "PUT /v1/kv/a", panics{})
		h.must(err)
		h.must(r.Body.Close())
		if r.StatusCode != http.StatusInternalServerError {
			t.Errorf("%s", r.Status)
		}
		h.wantDone(client, "PUT /v1/kv/a", "v", 200, "true")
	})
}

// bodyOf is an empty body that does something when it is read.
type bodyOf func()

func (b bodyOf) Read([]byte) (int, error) {
	b()
	return 0, io.EOF
}

// Ensure that a waiting write ends with its context, and is done nevertheless.
func TestTransport_WriteEndsWithItsContext(t *testing.T) {
	run(t, nil, func(h *harness) {
		client := h.client(nil)
		h.must(h.db.Update(func(*lockd.Txn) error { // every other write waits
			ctx, cancel := context.WithCancel(h.t.Context())
			_, err := h.do(ctx, client, "PUT /v1/kv/a", bodyOf(cancel))
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			return nil
		}))
		h.settle()
		h.want("GET /v1/kv/a?raw", "", 200, "")
	})
}

// Ensure that a request whose context has already ended does nothing but close its body.
func TestTransport_EndedContext(t *testing.T) {
	run(t, nil, func(h *harness) {
		transport, err := consulapi.Transport(h.db, nil)
		h.must(err)
		ctx, cancel := context.WithCancel(h.t.Context())
		cancel()
		body := slowBody{make(chan struct{})}
		r, err := http.NewRequestWithContext(ctx, "DELETE", "http://consul/v1/kv/a", body)
		h.must(err)
		h.put("a", "v")
		if _, err = transport.RoundTrip(r); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-body.closed
		h.settle()
		h.want("GET /v1/kv/a?raw", "", 200, "v")
	})
}

// Ensure that an answer ends with the context of its request, however short it is.
func TestTransport_AnswerEndsWithItsContext(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "v")
		ctx, cancel := context.WithCancel(h.t.Context())
		r, err := h.do(ctx, h.client(nil), "GET /v1/kv/a?raw", nil)
		h.must(err)
		cancel()
		if text, err := io.ReadAll(r.Body); !errors.Is(err, context.Canceled) {
			t.Errorf("%q, %v", text, err)
		}
		if n, err := io.Copy(io.Discard, r.Body); n != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("copied %d bytes, %v", n, err)
		}
		h.must(r.Body.Close())
	})
}

// Ensure that a request is not changed, and answered whether it has a body or not.
func TestTransport_LeavesTheRequest(t *testing.T) {
	run(t, nil, func(h *harness) {
		transport, err := consulapi.Transport(h.db, nil)
		h.must(err)
		for _, target := range []string{"PUT /v1/kv/a", "GET /v1/kv/a", "PUT /v1/snapshot"} {
			for _, ctx := range []context.Context{context.Background(), h.t.Context()} {
				method, path, _ := strings.Cut(target, " ")
				r, err := http.NewRequestWithContext(ctx, method, "http://consul"+path, nil)
				h.must(err)
				r.Header.Set("X-Sent", "1")
				before := *r
				before.Header, before.URL = r.Header.Clone(), new(*r.URL)
				response, err := transport.RoundTrip(r)
				h.must(err)
				h.must(response.Body.Close())
				if !reflect.DeepEqual(*r, before) || response.Request != r {
					t.Errorf("%s: %+v", target, r)
				}
			}
		}
	})
}

// Ensure that a body that ends the handler makes its request fail, as if the server were gone.
func TestTransport_BodyEndsTheConnection(t *testing.T) {
	opts := &consulapi.Options{Logger: slog.New(slog.DiscardHandler)}
	run(t, opts, func(h *harness) {
		client := h.client(opts)
		for name, body := range map[string]bodyOf{
			"ErrAbortHandler": func() { panic(http.ErrAbortHandler) },
			"Goexit":          runtime.Goexit,
		} {
			_, err := h.do(h.t.Context(), client, "PUT /v1/kv/a", body)
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := h.do(context.Background(), client, "PUT /v1/kv/a",
			bodyOf(func() { panic(http.ErrAbortHandler) }))
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("on the caller's goroutine: %v", err)
		}
	})
}

// Ensure that the next read sees a write, through the transport or the handler.
func TestTransport_G3_ReadsWhatWasWritten(t *testing.T) {
	run(t, nil, func(h *harness) {
		client := h.client(nil)
		for range 100 {
			h.wantDone(client, "PUT /v1/kv/a", "v", 200, "true")
			h.want("GET /v1/kv/a?raw", "", 200, "v")
			h.want("DELETE /v1/kv/a", "", 200, "true")
			h.wantDone(client, "GET /v1/kv/a", "", 404, "")
		}
	})
}

// BenchmarkTransport does reads and pairs. A pair, a lock taken and released, is two writes. A
// write with a context that may end costs a goroutine.
func BenchmarkTransport(b *testing.B) {
	db, err := lockd.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	transport, err := consulapi.Transport(db, nil)
	if err != nil {
		b.Fatal(err)
	}
	s, err := db.NewSession(nil)
	if err != nil {
		b.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	do := func(b *testing.B, ctx context.Context, method, query string, code int) {
		r, err := http.NewRequestWithContext(ctx, method, "http://lockd/v1/kv/a"+query, nil)
		if err != nil {
			b.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil || answer.StatusCode != code {
			b.Fatal(answer, err)
		}
		if err := answer.Body.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("Read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			do(b, b.Context(), http.MethodGet, "", http.StatusNotFound)
		}
	})
	for name, ctx := range map[string]context.Context{
		"Pair": context.Background(), "PairWithContext": b.Context(),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				do(b, ctx, http.MethodPut, "?acquire="+s.ID().String(), http.StatusOK)
				do(b, ctx, http.MethodPut, "?release="+s.ID().String(), http.StatusOK)
			}
		})
	}
}
