package consulapi_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/goleak"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where the databases of the tests log
	goleak.VerifyTestMain(m)
}

// harness is the API of a database in memory, on a mock clock, inside a bubble. Settle returns when
// every goroutine of the test waits, so that no test has to sleep.
type harness struct {
	http.Handler
	t     *testing.T
	db    *lockd.DB
	clock *clock.Mock
}

// run runs the test on an API with these options.
func run(t *testing.T, opts *consulapi.Options, test func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t, clock: clock.NewMock()}
		var err error
		h.db, err = lockd.New(&lockd.Options{Clock: h.clock})
		h.must(err)
		t.Cleanup(func() { h.must(h.db.Close()) })
		h.Handler, err = consulapi.Handler(h.db, opts)
		h.must(err)
		test(h)
	})
}

func (h *harness) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// settle returns when every other goroutine waits for something.
func (h *harness) settle() { synctest.Wait() }

// advance moves the clock, and returns when everything that became due has happened.
func (h *harness) advance(d time.Duration) {
	synctest.Wait() // what was begun has its deadlines
	h.clock.Add(d)
	synctest.Wait()
}

// reply is the answer to a request.
type reply struct {
	code   int
	body   string
	header http.Header
}

// index is the X-Consul-Index, or 0 if there is none.
func (r reply) index() uint64 {
	index, _ := strconv.ParseUint(r.header.Get("X-Consul-Index"), 10, 64)
	return index
}

// send sends a request whose URL is target, such as "PUT /v1/kv/a?flags=1", and returns the reply.
func (h *harness) send(target, body string) reply {
	h.t.Helper()
	return h.sendAs(h.t.Context(), target, strings.NewReader(body))
}

// sendAs sends a request that ends with ctx. A body of a type that net/http does not know is sent
// chunked.
func (h *harness) sendAs(ctx context.Context, target string, body io.Reader) reply {
	method, url, _ := strings.Cut(target, " ")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, url, body))
	return reply{w.Code, w.Body.String(), w.Header()}
}

// blocked sends a request in a goroutine of its own, and returns when it waits for something, or
// is answered.
func (h *harness) blocked(target string) <-chan reply {
	replies := make(chan reply, 1)
	go func() { replies <- h.sendAs(context.Background(), target, nil) }()
	h.settle()
	return replies
}

// waits fails the test if the request has been answered.
func (h *harness) waits(replies <-chan reply) {
	h.t.Helper()
	h.settle()
	select {
	case r := <-replies:
		h.t.Fatalf("answered with %d %s at index %d, and should wait", r.code, r.body, r.index())
	default:
	}
}

// answered returns the reply, which must have come.
func (h *harness) answered(replies <-chan reply) reply {
	h.t.Helper()
	h.settle()
	select {
	case r := <-replies:
		return r
	default:
		h.t.Fatal("still waits, and should be answered")
		panic("unreachable")
	}
}

// want sends a request and fails the test unless status and body are these.
func (h *harness) want(target, body string, code int, text string) reply {
	h.t.Helper()
	r := h.send(target, body)
	if r.code != code || r.body != text {
		h.t.Fatalf("%s: %d %q, not %d %q", target, r.code, r.body, code, text)
	}
	return r
}

// put stores a value, which must succeed.
func (h *harness) put(key, value string) {
	h.t.Helper()
	h.want("PUT /v1/kv/"+key, value, 200, "true")
}

// kv is an entry as a client sees it.
type kv struct {
	LockIndex, Flags, CreateIndex, ModifyIndex uint64
	Key, Session                               string
	Value                                      []byte
}

// decode decodes the body of a successful reply.
func decode[T any](h *harness, r reply) (v T) {
	h.t.Helper()
	if r.code != http.StatusOK {
		h.t.Fatalf("%d %s", r.code, r.body)
	}
	h.must(json.Unmarshal([]byte(r.body), &v))
	return v
}

// entry returns the key's entry, which must exist.
func (h *harness) entry(key string) kv {
	h.t.Helper()
	entries := decode[[]kv](h, h.send("GET /v1/kv/"+key, ""))
	if len(entries) != 1 {
		h.t.Fatalf("%d entries", len(entries))
	}
	return entries[0]
}

// session makes a session of the library, without a TTL.
func (h *harness) session(opts *lockd.SessionOptions) *lockd.Session {
	h.t.Helper()
	s, err := h.db.NewSession(opts)
	h.must(err)
	return s
}
