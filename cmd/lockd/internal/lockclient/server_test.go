package lockclient_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"go.uber.org/goleak"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
	"github.com/lockd/lockd/consulapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a server in a bubble, with the bubble's time, and clients of the server.
type harness struct {
	*wire
	t  *testing.T
	db *lockd.DB
}

// run runs a test against a server.
func run(t *testing.T, test func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		db, err := lockd.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		handler, err := consulapi.Handler(db, &consulapi.Options{MinTTL: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		test(&harness{&wire{handler: handler}, t, db})
	})
}

func (h *harness) must(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) client() *lockclient.Client {
	h.t.Helper()
	return over(h.t, h)
}

// over returns a client whose requests go over a transport.
func over(t *testing.T, transport http.RoundTripper) *lockclient.Client {
	t.Helper()
	c, err := lockclient.New(api.Config{Address: "http://h:1", Token: "secret",
		HttpClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// keep makes a session with a TTL of 15 s and the lock-delay.
func (h *harness) keep(delay time.Duration) *lockclient.Keeper {
	h.t.Helper()
	k, err := h.client().Keep(h.t.Context(), lockclient.SessionOptions{
		Name: h.t.Name(), TTL: ttl, LockDelay: delay,
	})
	h.must(err)
	return k
}

const ttl = 15 * time.Second

// keepOver makes a session over a transport, which is handed each request and may let it pass.
func (h *harness) keepOver(f roundTrip) *lockclient.Keeper {
	h.t.Helper()
	k, err := over(h.t, f).Keep(h.t.Context(), lockclient.SessionOptions{TTL: ttl})
	h.must(err)
	return k
}

// close ends a session.
func (h *harness) close(k *lockclient.Keeper) {
	h.t.Helper()
	h.must(k.Close(h.t.Context()))
}

// holder returns the name of the key's holder, "" if there is none.
func (h *harness) holder(key string) string {
	e, _ := h.db.Get(key)
	if e.Session == (lockd.SessionID{}) {
		return ""
	}
	return e.Session.String()
}

// sessionID parses the ID of a session.
func (h *harness) sessionID(text string) lockd.SessionID {
	h.t.Helper()
	id, err := lockd.ParseSessionID(text)
	h.must(err)
	return id
}

// proves fails the test unless the pair of a lock of the keeper proves it now.
func (h *harness) proves(k *lockclient.Keeper, l *lockclient.Lock) {
	h.t.Helper()
	q := lockd.Sequencer{
		Key: l.Pair().Key, Session: h.sessionID(k.ID()), LockIndex: l.Pair().LockIndex,
		Fence: l.Pair().ModifyIndex,
	}
	if l.Shared() {
		q.Mode = lockd.Shared
	}
	h.must(h.db.CheckSequencer(q))
}

// lives reports whether the server has the session.
func (h *harness) lives(id string) bool {
	h.t.Helper()
	_, ok := h.db.Snapshot().Session(h.sessionID(id))
	return ok
}

// wire is the connection to the server, and what goes wrong on it.
type wire struct {
	handler http.Handler

	mu    sync.Mutex
	fault fault
	path  string // the fault concerns requests that contain it
	seen  []string
}

type fault uint8

const (
	none   fault = iota
	cut          // a request does not arrive
	mute         // an answer does not arrive, for ever
	lost         // an answer does not arrive, and the client is told so
	broken       // the server answers with status 500
	busy         // the server answers with status 429
	slow         // the server takes half a second for an answer
	absent       // the server has no such path
)

// fail makes the fault happen to requests whose path contains the text.
func (w *wire) fail(f fault, path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.path = f, path
}

// requests returns the requests since the last call, as method and URL.
func (w *wire) requests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.seen
	w.seen = nil
	return seen
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	f := none
	if strings.Contains(r.URL.Path, w.path) {
		f = w.fault
	}
	w.seen = append(w.seen, r.Method+" "+r.URL.RequestURI())
	w.mu.Unlock()
	switch f {
	case cut:
		return nil, errors.New("connection refused")
	case broken:
		rec := httptest.NewRecorder()
		http.Error(rec, "broken", http.StatusInternalServerError)
		return rec.Result(), nil
	case busy:
		rec := httptest.NewRecorder()
		http.Error(rec, "busy", http.StatusTooManyRequests)
		return rec.Result(), nil
	case absent:
		rec := httptest.NewRecorder()
		http.NotFound(rec, r)
		return rec.Result(), nil
	}
	if f == slow {
		time.Sleep(500 * time.Millisecond)
	}
	rec := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if cause := recover(); cause != nil && cause != http.ErrAbortHandler {
				panic(cause)
			}
		}()
		in := r.Clone(r.Context())
		if in.Body == nil {
			in.Body = http.NoBody
		}
		w.handler.ServeHTTP(rec, in)
	}()
	<-done
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	switch f {
	case mute:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case lost:
		return nil, errors.New("connection reset")
	}
	return rec.Result(), nil
}
