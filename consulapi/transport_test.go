package consulapi_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
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

// do sends a request to an address that is none, and returns the response.
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
		if r.Status != "200 OK" || r.Header.Get("X-Consul-Index") == "" || r.Request == nil ||
			r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %v", r.Status, r.Header)
		}
	})
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

// slowBody is a body that does not come to its end until it is closed.
type slowBody struct{ closed chan struct{} }

func (b slowBody) Read([]byte) (int, error) {
	<-b.closed
	return 0, io.ErrClosedPipe
}

func (b slowBody) Close() error {
	close(b.closed)
	return nil
}

// Ensure that a request whose body does not come ends with its context, and that its body is
// closed then.
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

// Ensure that a body is closed that nobody reads.
func TestTransport_ClosesTheBody(t *testing.T) {
	run(t, nil, func(h *harness) {
		body := slowBody{make(chan struct{})}
		r, err := h.do(h.t.Context(), h.client(nil), "GET /v1/kv/a", body)
		h.must(err)
		h.must(r.Body.Close())
		<-body.closed
	})
}

// Ensure that the body of a long answer comes whole, and can be given up.
func TestTransport_LongAnswer(t *testing.T) {
	run(t, nil, func(h *harness) {
		client := h.client(nil)
		large := strings.Repeat("x", 512<<10)
		h.wantDone(client, "PUT /v1/kv/a", large, 200, "true")
		for _, target := range []string{"GET /v1/kv/a?raw", "GET /v1/snapshot"} {
			r, err := h.do(h.t.Context(), client, target, nil)
			h.must(err)
			whole, err := io.ReadAll(r.Body)
			h.must(err)
			h.must(r.Body.Close())
			if !strings.Contains(string(whole), large[:400<<10]) {
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

// Ensure that a write is seen by the next read, through whatever door.
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
	client := &http.Client{Transport: transport}
	for b.Loop() {
		r, err := client.Get("http://lockd/v1/kv/a")
		if err != nil || r.StatusCode != http.StatusNotFound {
			b.Fatal(r, err)
		}
		if err := r.Body.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
