package conformance_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
	"go.uber.org/goleak"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
	"github.com/lockd/lockd/lockdtest"
)

// harness is the official client, and the database that it works on. A test advances the server's
// time as it needs, and does not control the client's time. In process both follow the clock of a
// bubble, which costs nothing. Over loopback the server's time stands still until advance moves it,
// and the client's time is real.
type harness struct {
	*api.Client
	t       *testing.T
	db      *lockd.DB
	way     *way
	advance func(d time.Duration) // the server's time
	now     func() time.Time      // the server's time
	server  *server               // over loopback
}

// short allows short TTLs.
var short = consulapi.Options{MinTTL: time.Millisecond}

// each runs the test through Transport and over loopback.
func each(t *testing.T, test func(h *harness)) {
	t.Helper()
	eachWith(t, short, test)
}

// eachWith is each with these options of the server.
func eachWith(t *testing.T, opts consulapi.Options, test func(h *harness)) {
	t.Helper()
	t.Parallel()
	t.Run("transport", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { test(inProcess(t, opts)) })
	})
	t.Run("loopback", func(t *testing.T) {
		t.Parallel()
		test(overLoopback(t, opts))
	})
}

// inProcess is a client through Transport, in a bubble.
func inProcess(t *testing.T, opts consulapi.Options) *harness {
	db, err := lockd.New(nil)
	check(t, err)
	t.Cleanup(func() {
		check(t, db.Close())
		time.Sleep(time.Hour) // the client gives up its retries
	})
	return throughTransport(t, db, opts)
}

// throughTransport is a client of this database.
func throughTransport(t *testing.T, db *lockd.DB, opts consulapi.Options) *harness {
	transport, err := consulapi.Transport(db, &opts)
	check(t, err)
	h := &harness{t: t, db: db, way: &way{next: transport, changed: make(chan struct{})}}
	h.Client = h.client(api.DefaultConfig())
	h.now = time.Now
	h.advance = func(d time.Duration) {
		time.Sleep(d)
		synctest.Wait()
	}
	return h
}

// overLoopback is a client of a server on a socket.
func overLoopback(t *testing.T, opts consulapi.Options) *harness {
	db := lockdtest.New(t, nil)
	handler, err := consulapi.Handler(db.DB, &opts)
	check(t, err)
	server := serve(t, handler)
	config := api.DefaultConfig()
	config.Address = server.URL
	pool := config.Transport
	t.Cleanup(pool.CloseIdleConnections)
	h := &harness{
		t: t, db: db.DB, way: &way{next: pool, changed: make(chan struct{})}, server: server,
	}
	h.Client = h.client(config)
	h.now = db.Now
	h.advance = db.Advance
	return h
}

// server is a server on loopback that counts its connections.
type server struct {
	*httptest.Server

	mu          sync.Mutex
	connections int
	changed     chan struct{} // closed with the next change of connections
}

// serve starts a server.
func serve(t *testing.T, handler http.Handler) *server {
	s := &server{Server: httptest.NewUnstartedServer(handler), changed: make(chan struct{})}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch state {
		case http.StateNew:
			s.connections++
		case http.StateClosed:
			s.connections--
		default:
			return
		}
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections() // ends the queries that are blocked
		s.Close()
	})
	return s
}

// waitUntilAlone waits until no client is connected, and so no request is being served.
func (s *server) waitUntilAlone(t *testing.T) {
	t.Helper()
	timeout := time.After(patience)
	for {
		s.mu.Lock()
		connections, changed := s.connections, s.changed
		s.mu.Unlock()
		if connections == 0 {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("%d connections are left", connections)
		}
	}
}

// client makes a client that sends its requests through the harness's way.
func (h *harness) client(config *api.Config) *api.Client {
	config.HttpClient = &http.Client{Transport: h.way}
	client, err := api.NewClient(config)
	check(h.t, err)
	return client
}

func TestMain(m *testing.M) {
	if isChild() {
		runChild()
	}
	goleak.VerifyTestMain(m)
}

// way lies between client and server. It remembers what was answered, so that a test can wait for
// an answer, and it can break.
type way struct {
	next http.RoundTripper

	mu       sync.Mutex
	begun    []string      // "PUT /v1/kv/a?acquire=…"
	answered []string      // those of begun that were answered
	refusal  string        // why the last request was refused, by its header
	changed  chan struct{} // closed with the next request or answer
	breaks   string        // requests that contain this are not let through
	failures int           // how many more requests are not let through
}

// RoundTrip lets a request through, or answers it with 500.
func (w *way) RoundTrip(r *http.Request) (*http.Response, error) {
	line := r.Method + " " + r.URL.RequestURI()
	w.mu.Lock()
	fails := w.failures > 0 && strings.Contains(line, w.breaks)
	if fails {
		w.failures--
	}
	w.record(&w.begun, line)
	w.mu.Unlock()
	var response *http.Response
	var err error
	if fails {
		recorder := httptest.NewRecorder()
		recorder.WriteHeader(http.StatusInternalServerError)
		response = recorder.Result()
	} else {
		response, err = w.next.RoundTrip(r)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record(&w.answered, line)
	if err == nil {
		w.refusal = response.Header.Get("X-Lockd-Refusal")
	}
	return response, err
}

// record needs mu.
func (w *way) record(lines *[]string, line string) {
	*lines = append(*lines, line)
	close(w.changed)
	w.changed = make(chan struct{})
}

// fail breaks the way for the next n requests that contain the text.
func (w *way) fail(text string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breaks, w.failures = text, n
}

// count returns how many requests that contain the text have been answered.
func (w *way) count(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return occurrences(w.answered, text)
}

// lastRefusal returns why the last answered request was refused, "" if it was not.
func (w *way) lastRefusal() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.refusal
}

func occurrences(lines []string, text string) (n int) {
	for _, line := range lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// patience is how long a test waits, in the client's time, for what must happen.
const patience = time.Minute

// waitFor waits until n requests that contain the text have been answered since the test began.
func (h *harness) waitFor(text string, n int) {
	h.t.Helper()
	h.waitForLines(&h.way.answered, text, n)
}

// waitForBegun waits until n requests that contain the text have been made since the test began.
func (h *harness) waitForBegun(text string, n int) {
	h.t.Helper()
	h.waitForLines(&h.way.begun, text, n)
}

func (h *harness) waitForLines(lines *[]string, text string, n int) {
	h.t.Helper()
	timeout := time.After(patience)
	for {
		h.way.mu.Lock()
		got, changed := occurrences(*lines, text), h.way.changed
		h.way.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			h.t.Fatalf("%d requests with %q, not %d", got, text, n)
		}
	}
}

// receive returns what comes from the channel, which must come without a move of the server's time.
func receive[T any](h *harness, from <-chan T) T {
	h.t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		h.t.Fatal("nothing came")
		panic("unreachable")
	}
}

// maxSteps is how often await moves the time on. A step takes a millisecond of real time.
const maxSteps = 60_000

// await moves the server's time on in steps until something comes from the channel.
func await[T any](h *harness, from <-chan T, step time.Duration) T {
	h.t.Helper()
	for range maxSteps {
		select {
		case v := <-from:
			return v
		default:
			h.advance(step)
		}
	}
	h.t.Fatal("nothing came")
	panic("unreachable")
}

// call runs the function in a goroutine, and returns the channel of its result.
func call[T any](fn func() T) <-chan T {
	result := make(chan T, 1)
	go func() { result <- fn() }()
	return result
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// equal fails the test unless got is want.
func equal[T comparable](h *harness, what string, got, want T) {
	h.t.Helper()
	if got != want {
		h.t.Fatalf("%s: %v, not %v", what, got, want)
	}
}

// refused fails the test unless the error has the text.
func (h *harness) refused(err error, text string) {
	h.t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		h.t.Fatalf("error %v, which should have %q", err, text)
	}
}

// hold holds a lock or a slot for a moment, in which other holders are met, and releases it. It
// fails if more than limit hold at once.
func hold(holders *atomic.Int32, limit int32, release func() error) error {
	var err error
	if n := holders.Add(1); n > limit {
		err = fmt.Errorf("%d hold at once, and %d may", n, limit)
	}
	time.Sleep(20 * time.Millisecond)
	holders.Add(-1)
	return errors.Join(err, release())
}

// open reports whether the channel of a lock or a slot has told nothing.
func open(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return false
	default:
		return true
	}
}

// put stores a value.
func (h *harness) put(key, value string) *api.KVPair {
	h.t.Helper()
	_, err := h.KV().Put(&api.KVPair{Key: key, Value: []byte(value)}, nil)
	check(h.t, err)
	return h.get(key)
}

// get returns an entry, which must be there.
func (h *harness) get(key string) *api.KVPair {
	h.t.Helper()
	pair, meta, err := h.KV().Get(key, nil)
	check(h.t, err)
	if pair == nil {
		h.t.Fatalf("%s is not there", key)
	}
	equal(h, "I2: index of "+key, meta.LastIndex, pair.ModifyIndex)
	return pair
}

// missing fails the test if the key is there, and returns the index of the answer.
func (h *harness) missing(key string) uint64 {
	h.t.Helper()
	pair, meta, err := h.KV().Get(key, nil)
	check(h.t, err)
	if pair != nil {
		h.t.Fatalf("%s is there: %v", key, pair)
	}
	return meta.LastIndex
}

// session makes a session. No lock-delay is not to be had: the client leaves 0 out.
func (h *harness) session(entry *api.SessionEntry) string {
	h.t.Helper()
	id, _, err := h.Session().Create(entry, nil)
	check(h.t, err)
	return id
}

// destroy ends a session.
func (h *harness) destroy(id string) {
	h.t.Helper()
	_, err := h.Session().Destroy(id, nil)
	check(h.t, err)
}

// info returns a session, or nil.
func (h *harness) info(id string) *api.SessionEntry {
	h.t.Helper()
	entry, _, err := h.Session().Info(id, nil)
	check(h.t, err)
	return entry
}

// acquire tries to take a key's lock.
func (h *harness) acquire(key, session, value string) bool {
	h.t.Helper()
	ok, _, err := h.KV().Acquire(
		&api.KVPair{Key: key, Session: session, Value: []byte(value)}, nil)
	check(h.t, err)
	return ok
}

// release tries to give a key's lock back.
func (h *harness) release(key, session, value string) bool {
	h.t.Helper()
	ok, _, err := h.KV().Release(
		&api.KVPair{Key: key, Session: session, Value: []byte(value)}, nil)
	check(h.t, err)
	return ok
}

// brief writes an entry so that two can be compared.
func brief(p *api.KVPair) string {
	return fmt.Sprintf("%s=%q flags %d session %q create %d modify %d lock %d",
		p.Key, p.Value, p.Flags, p.Session, p.CreateIndex, p.ModifyIndex, p.LockIndex)
}
