package consulapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/consulapi"
)

// many is more than fits into a piece of any list, and more names than are sorted at a time.
const many = 1500

// fill puts enough rows into the database to make every list long.
func fill(t *testing.T, db *lockd.DB) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range many {
		_, err := db.NewSession(&lockd.SessionOptions{Name: fmt.Sprintf("session %d", i)})
		must(err)
	}
	must(db.Update(func(tx *lockd.Txn) error {
		for i := range many {
			key := fmt.Sprintf(`many/of-some-length-%04d/"<%s>"`, i, strings.Repeat("é", i%7))
			if _, err := tx.Put(key, bytes.Repeat([]byte("v"), i%100), nil); err != nil {
				return err
			}
			name := fmt.Sprintf("a-node-by-the-name-of-%04d", i)
			if i%2 == 0 { // names differ by more than their order without case
				name = strings.ToUpper(name)
			}
			n := catalog.Node{Name: name, Address: "10.0.0.1"}
			if err := tx.Catalog().PutNode(n); err != nil {
				return err
			}
			for _, s := range []catalog.Service{
				{Node: name, ID: "web", Name: "web", Tags: []string{fmt.Sprint("t", i%9), "a"}},
				{Node: db.Node(), ID: name, Name: name},
			} {
				if err := tx.Catalog().PutService(s); err != nil {
					return err
				}
			}
			for _, c := range []catalog.Check{
				{Node: name, ID: "own", Status: catalog.Passing},
				{Node: name, ID: "of", ServiceID: "web", Status: catalog.Passing},
				{Node: db.Node(), ID: name, Status: catalog.Passing},
			} {
				if err := tx.Catalog().PutCheck(c); err != nil {
					return err
				}
			}
		}
		_, err := tx.Put("large", bytes.Repeat([]byte("0123456789"), 50_000), nil)
		return err
	}))
}

// long are the reads whose answers are long once the database is filled.
var long = []string{
	"/v1/kv/?recurse", "/v1/kv/?keys", "/v1/kv/many/?keys&separator=/", "/v1/kv/large",
	"/v1/session/list", "/v1/session/node/n", "/v1/catalog/nodes", "/v1/catalog/services",
	"/v1/catalog/service/web", "/v1/catalog/node/n", "/v1/health/state/any",
	"/v1/health/service/web", "/v1/health/node/n", "/v1/agent/services", "/v1/agent/checks",
	"/v1/query", "/v1/query/web/execute",
}

// served returns an empty database and its API.
func served(t *testing.T) (*lockd.DB, http.Handler) {
	t.Helper()
	db, err := lockd.New(&lockd.Options{Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	handler, err := consulapi.Handler(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	return db, handler
}

// filled returns an API whose lists are all long.
func filled(t *testing.T) (*lockd.DB, http.Handler) {
	t.Helper()
	db, handler := served(t)
	fill(t, db)
	for i := range many / 10 {
		w := httptest.NewRecorder()
		name := fmt.Sprint("q", i)
		if i == 0 {
			name = "web"
		}
		handler.ServeHTTP(w, httptest.NewRequest("POST", "/v1/query", strings.NewReader(
			fmt.Sprintf(`{"Name":%q,"Service":{"Service":"web"}}`, name))))
		if w.Code != 200 {
			t.Fatal(w.Body)
		}
	}
	return db, handler
}

// Ensure that a long answer is the JSON that a short one would be: exactly what encoding/json makes
// of it, with the same headers, except the length, which is not known.
func TestEncode_H21_Lists(t *testing.T) {
	_, handler := filled(t)
	for _, target := range long {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		var tight bytes.Buffer
		err := json.Compact(&tight, w.Body.Bytes())
		if err != nil || w.Code != 200 || !bytes.Equal(tight.Bytes(), w.Body.Bytes()) {
			t.Errorf("%s: %d, %v, %d bytes, compact %d", target, w.Code, err, w.Body.Len(),
				tight.Len())
		}
		if w.Body.Len() <= 32<<10 {
			t.Errorf("%s: only %d bytes", target, w.Body.Len())
		}
		length := w.Header()["Content-Length"]
		if kind := w.Header().Get("Content-Type"); length != nil || kind != "application/json" {
			t.Errorf("%s: Content-Length %q, Content-Type %q", target, length, kind)
		}
		if strings.HasSuffix(target, "/execute") {
			continue // in another order each time
		}
		separator := "?"
		if strings.Contains(target, "?") {
			separator = "&"
		}
		p := httptest.NewRecorder()
		handler.ServeHTTP(p, httptest.NewRequest("GET", target+separator+"pretty", nil))
		var indented bytes.Buffer
		if err := json.Indent(&indented, w.Body.Bytes(), "", "    "); err != nil {
			t.Fatal(err)
		}
		indented.WriteByte('\n')
		if !bytes.Equal(p.Body.Bytes(), indented.Bytes()) {
			t.Errorf("%s: pretty: %.200s, not %.200s", target, p.Body, &indented)
		}
		if !maps.EqualFunc(p.Header(), w.Header(), slices.Equal) {
			t.Errorf("%s: %v, not %v", target, p.Header(), w.Header())
		}
	}
}

// Ensure that ?pretty formats JSON as encoding/json does, also with empty arrays and objects, and
// with texts that contain what would be formatted outside a text.
func TestEncode_H11_Pretty(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, key := range []string{`{"a":[1,2],"b":{}}`, `\`, `\"`, `"`, `[`, `,:`, `\\"{`} {
			h.must(h.db.Update(func(tx *lockd.Txn) error {
				_, err := tx.Put("k/"+key, []byte(key), nil)
				return err
			}))
		}
		for _, target := range []string{
			"/v1/kv/?recurse", "/v1/kv/?keys", "/v1/kv/?keys&separator=k", "/v1/session/list?",
			"/v1/catalog/nodes?", "/v1/catalog/node/none?", "/v1/catalog/services?",
			"/v1/agent/self?", "/v1/agent/services?", "/v1/status/peers?", "/v1/health/state/any?",
		} {
			plain := h.send("GET "+target, "").body
			var want bytes.Buffer
			h.must(json.Indent(&want, []byte(plain), "", "    "))
			want.WriteByte('\n')
			h.want("GET "+target+"&pretty", "", 200, want.String())
		}
	})
}

// Ensure that the lists of keys, services and checks are complete and in order.
func TestEncode_H21_WhatIsThere(t *testing.T) {
	db, handler := filled(t)
	get := func(target string, v any) {
		t.Helper()
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
			t.Fatal(err)
		}
		if again, err := json.Marshal(v); err != nil || !bytes.Equal(again, w.Body.Bytes()) {
			t.Errorf("%s: %.200s is in another order than %.200s", target, w.Body, again)
		}
	}
	var entries []struct {
		LockIndex   uint64
		Key         string
		Flags       uint64
		Value       []byte
		Session     string `json:",omitempty"`
		CreateIndex uint64
		ModifyIndex uint64
	}
	get("/v1/kv/?recurse", &entries)
	for _, e := range entries {
		want, _ := db.Get(e.Key)
		if !bytes.Equal(e.Value, want.Value) || e.ModifyIndex != want.ModifyIndex {
			t.Errorf("%s: %+v is not %+v", e.Key, e, want)
		}
	}
	if len(entries) != many+1 {
		t.Errorf("%d keys", len(entries))
	}

	var services map[string][]string
	get("/v1/catalog/services", &services)
	if web := services["web"]; len(services) != many+1 || len(web) != 10 || web[0] != "a" {
		t.Errorf("%d services, web has %q", len(services), web)
	}
	var byID map[string]json.RawMessage
	get("/v1/agent/services", &byID)
	if len(byID) != many {
		t.Errorf("%d services by ID", len(byID))
	}
	byID = nil
	get("/v1/agent/checks", &byID)
	if len(byID) != many {
		t.Errorf("%d checks by ID", len(byID))
	}
}

// stuck is a client that takes the first piece of its answer and then nothing, until it is let go.
type stuck struct {
	*httptest.ResponseRecorder
	waits, release chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	s.waits <- struct{}{}
	<-s.release
	return 0, io.ErrClosedPipe
}

// Ensure that a client that does not take its answer costs only a little memory, whatever it asks
// for and in whatever form.
func TestEncode_H21_Memory(t *testing.T) {
	db, handler := filled(t)
	for i := range 20 {
		if _, err := db.Put(fmt.Sprint("big/", i), make([]byte, 1_000_000), nil); err != nil {
			t.Fatal(err)
		}
	}
	db.Snapshot()                       // the first one after a write takes memory of its own
	const clients, most = 10, 200 << 10 // a server needs some for the connection
	ops := func(key string) string {
		all := strings.Repeat(`{"KV":{"Verb":"get-tree","Key":"`+key+`"}},`, 20)
		return "[" + all[:len(all)-1] + "]"
	}
	txns := map[string]string{"/v1/txn": ops("big/"), "/v1/txn?many": ops("many/")}
	for _, target := range append(slices.Clone(long), "/v1/txn", "/v1/txn?many",
		"/v1/kv/big/1?raw") {
		for _, encoding := range []string{"identity", "gzip"} {
			waits, release := make(chan struct{}), make(chan struct{})
			ended := make(chan any, clients)
			before := memoryInUse()
			for range clients {
				r := httptest.NewRequest("GET", target, nil)
				if body, is := txns[target]; is {
					r = httptest.NewRequest("PUT", target, strings.NewReader(body))
				}
				r.Header.Set("Accept-Encoding", encoding)
				go func() {
					defer func() { ended <- recover() }()
					handler.ServeHTTP(&stuck{httptest.NewRecorder(), waits, release}, r)
				}()
				<-waits
			}
			if got := (memoryInUse() - before) / clients; got > most {
				t.Errorf("%s, %s: %d bytes for each client", target, encoding, got)
			}
			close(release)
			for range clients {
				if cause := <-ended; cause != http.ErrAbortHandler &&
					!strings.Contains(target, "raw") {
					t.Errorf("%s, %s: the request ended with %v", target, encoding, cause)
				}
			}
		}
	}
}

// Ensure that a client that does not take the list of the locks costs little memory for each lock:
// less than the description of the lock.
func TestEncode_L1_Memory(t *testing.T) {
	const locks, most = 20_000, 150
	db, handler := served(t)
	session, err := db.NewSession(nil)
	if err == nil {
		err = db.Update(func(tx *lockd.Txn) error {
			for i := range locks {
				if _, err := tx.Lock(fmt.Sprint("lock/", i), session.ID(), nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	for range db.Locks() { // the first view takes memory of its own
		break
	}
	waits, release, ended := make(chan struct{}), make(chan struct{}), make(chan any)
	before := memoryInUse()
	go func() {
		defer func() { ended <- recover() }()
		handler.ServeHTTP(&stuck{httptest.NewRecorder(), waits, release},
			httptest.NewRequest("GET", "/v1/lockd/locks", nil))
	}()
	<-waits
	if got := (memoryInUse() - before) / locks; got > most {
		t.Errorf("%d bytes for each lock, more than %d", got, most)
	}
	close(release)
	if cause := <-ended; cause != http.ErrAbortHandler {
		t.Errorf("the request ended with %v", cause)
	}
}

// memoryInUse returns how many bytes are in use after a garbage collection.
func memoryInUse() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second frees what pools have kept
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}

// Ensure that a list that is sent in pieces shows one state, whatever is written meanwhile.
func TestEncode_G3_OneState(t *testing.T) {
	db, handler := filled(t)
	whole := httptest.NewRecorder()
	handler.ServeHTTP(whole, httptest.NewRequest("GET", "/v1/kv/?recurse", nil))
	w := &meddling{httptest.NewRecorder(), func() {
		if _, err := db.DeletePrefix("many/"); err != nil {
			t.Error(err)
		}
	}}
	handler.ServeHTTP(w, httptest.NewRequest("GET", "/v1/kv/?recurse", nil))
	if !bytes.Equal(w.Body.Bytes(), whole.Body.Bytes()) {
		t.Errorf("%d bytes, not %d", w.Body.Len(), whole.Body.Len())
	}
}

// meddling is a client that does something before it takes a piece.
type meddling struct {
	*httptest.ResponseRecorder
	meddle func()
}

func (m *meddling) Write(p []byte) (int, error) {
	m.meddle()
	return m.ResponseRecorder.Write(p)
}

// Ensure that a long answer is compressed in pieces, and decompresses to the original, and that an
// answer that would not get shorter stays as it is.
func TestCompress_H20_InPieces(t *testing.T) {
	db, handler := filled(t)
	noise := make([]byte, 400_000)
	x := uint32(1)
	for i := range noise {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	for key, value := range map[string][]byte{
		"raw": bytes.Repeat([]byte("0123456789"), 40_000), "noise": noise,
	} {
		if _, err := db.Put(key, value, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range append(slices.Clone(long), "/v1/kv/raw?raw", "/v1/kv/noise?raw") {
		if strings.HasSuffix(target, "/execute") {
			continue // in another order each time
		}
		plain, small := httptest.NewRecorder(), httptest.NewRecorder()
		handler.ServeHTTP(plain, httptest.NewRequest("GET", target, nil))
		r := httptest.NewRequest("GET", target, nil)
		r.Header.Set("Accept-Encoding", "gzip")
		handler.ServeHTTP(small, r)
		var got io.Reader = small.Body
		if encoding := small.Header().Get("Content-Encoding"); encoding == "gzip" {
			z, err := gzip.NewReader(small.Body)
			if err != nil {
				t.Fatal(err)
			}
			z.Multistream(false) // not all clients know more than one
			got = z
		} else if !strings.Contains(target, "noise") {
			t.Errorf("%s: encoding %q", target, encoding)
		}
		text, err := io.ReadAll(got)
		if err != nil || !bytes.Equal(text, plain.Body.Bytes()) {
			t.Errorf("%s: %v, %d bytes, not %d", target, err, len(text), plain.Body.Len())
		}
		if rest := small.Body.Len(); rest > 0 {
			t.Errorf("%s: %d bytes behind the end", target, rest)
		}
	}
}

// Ensure that a client can tell a truncated answer from a whole one.
func TestEncode_H21_CutOff(t *testing.T) {
	_, handler := filled(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pieces := 0
		handler.ServeHTTP(&failing{w, func() error {
			if pieces++; pieces > 2 {
				return errors.New("no more")
			}
			return nil
		}}, r)
	}))
	defer s.Close()
	response, err := s.Client().Get(s.URL + "/v1/kv/?recurse")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadAll(response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

// failing is a connection that ends.
type failing struct {
	http.ResponseWriter
	check func() error
}

func (f *failing) Write(p []byte) (int, error) {
	if err := f.check(); err != nil {
		return 0, err
	}
	return f.ResponseWriter.Write(p)
}

// Ensure that a long list comes whole through a Transport too, and can be given up.
func TestTransport_LongList(t *testing.T) {
	run(t, nil, func(h *harness) {
		fill(t, h.db)
		client := h.client(nil)
		for _, target := range []string{"/v1/kv/?recurse", "/v1/catalog/nodes", "/v1/kv/large"} {
			want := h.send("GET "+target, "").body
			r, err := h.do(h.t.Context(), client, "GET "+target, nil)
			h.must(err)
			whole, err := io.ReadAll(r.Body)
			h.must(err)
			h.must(r.Body.Close())
			if string(whole) != want || r.Header.Get("X-Consul-Index") == "" {
				t.Errorf("%s: %d bytes, not %d", target, len(whole), len(want))
			}
			r, err = h.do(h.t.Context(), client, "GET "+target, nil)
			h.must(err)
			_, err = io.ReadFull(r.Body, make([]byte, 1000))
			h.must(err)
			h.must(r.Body.Close())
		}
	})
}
