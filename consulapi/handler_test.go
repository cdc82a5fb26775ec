package consulapi_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/consulapi"
)

func TestHandler_H1_Methods(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, method := range []string{"POST", "HEAD", "PATCH", "TRACE", "get"} {
			r := h.want(method+" /v1/kv/a", "", 405, "method "+method+" not allowed")
			if allow := r.header.Get("Allow"); allow != "OPTIONS,GET,PUT,DELETE" {
				t.Errorf("%s: Allow is %q", method, allow)
			}
		}
		r := h.want("OPTIONS /v1/kv/a", "", 200, "")
		if allow := r.header.Get("Allow"); allow != "OPTIONS,GET,PUT,DELETE" {
			t.Errorf("OPTIONS: Allow is %q", allow)
		}
		h.want("PUT /v1/status/leader", "", 405, "method PUT not allowed")
	})
}

func TestHandler_H6_QueryThatIsNone(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("GET /v1/kv/a?index=%zz", "", 500, "")
		h.want("PUT /v1/kv/a?flags=%zz", "v", 500, "")
		h.want("POST /v1/kv/a?index=%zz", "", 500, "")
		h.want("GET /v1/kv/a", "", 404, "")
	})
}

// Ensure that paths of Consul that lockd does not have are answered like any unknown path.
func TestHandler_H18_UnknownPaths(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, path := range []string{
			"/v1/", "/v1/x", "/v1/acl/tokens", "/v1/connect/ca/roots", "/v1/config", "/v1/kvx",
			"/v1/event/list", "/v1/operator/raft/configuration", "/v1/agent/join/x",
			"/v1/coordinate/nodes", "/v1/status/leader/", "/v1/status", "/v1/internal/ui/nodes",
		} {
			h.want("PUT "+path, "", 404, "Invalid URL path: not a recognized HTTP API endpoint\n")
		}
		for _, path := range []string{"/v1", "/x", "/v2/kv/a", "/ui/", "//v1/kv/a", "/v1%2Fkv/a"} {
			h.want("GET "+path, "", 404, "Invalid URL path: if attempting to use the HTTP API, "+
				"ensure the path starts with '/v1/'\n")
		}
		if r := h.send("GET /", ""); r.code != 200 || r.body == "" {
			t.Errorf("/: %d %q", r.code, r.body)
		}
	})
}

// Ensure that errors are plain text, which begins as Consul's does.
func TestHandler_H19_Place(t *testing.T) {
	run(t, &consulapi.Options{Datacenter: "here"}, func(h *harness) {
		h.want("GET /v1/kv/?keys&dc=here", "", 200, "[]")
		r := h.want("GET /v1/kv/?keys&dc=there", "", 500, "No path to datacenter")
		if got := r.header.Get("Content-Type"); got != "text/plain; charset=utf-8" {
			t.Errorf("Content-Type is %q", got)
		}
		h.want("PUT /v1/kv/a?ns=default", "", 400, `Bad request: Invalid query parameter: "ns" - `+
			`Namespaces are a Consul Enterprise feature`)
		h.want("PUT /v1/kv/a?partition=x", "", 400, `Bad request: Invalid query parameter: `+
			`"partition" - Partitions are a Consul Enterprise feature`)
		for header, kind := range map[string]string{
			"X-Consul-Namespace": "Namespaces", "X-Consul-Partition": "Partitions",
		} {
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, "/v1/kv/?keys", nil)
			r.Header.Set(header, "default")
			h.ServeHTTP(w, r)
			want := fmt.Sprintf("Bad request: Invalid header: %q - %s are a Consul Enterprise "+
				"feature", header, kind)
			if w.Code != 400 || w.Body.String() != want {
				t.Errorf("%s: %d %q, want %q", header, w.Code, w.Body, want)
			}
		}
		h.want("PUT /v1/kv/a?ns=&partition=&token=x&unknown", "v", 200, "true")
	})
}

func TestHandler_A8_Status(t *testing.T) {
	run(t, nil, func(h *harness) {
		r := h.want("GET /v1/status/leader", "", 200, `"127.0.0.1:8300"`)
		if r.index() != 0 {
			t.Errorf("index %d", r.index())
		}
		h.want("GET /v1/status/peers", "", 200, `["127.0.0.1:8300"]`)
	})
}

// Ensure that the node of this process exists, with a passing check, before any request.
func TestHandler_N14X21_NodeOfThisProcess(t *testing.T) {
	const id = "a6d5e2c1-7f1c-4d0a-9f7e-0d5b1c2e3f40"
	run(t, &consulapi.Options{NodeID: id}, func(h *harness) {
		state := h.db.Snapshot()
		node, _ := state.Catalog().Node(h.db.Node())
		check, _ := state.Catalog().Check(h.db.Node(), "serfHealth")
		if node.ID != id || node.Address == "" || check.Status != catalog.Passing {
			t.Errorf("%+v %+v", node, check)
		}
		if index := state.IndexOf(lockd.CatalogScope()); index < 2 {
			t.Errorf("the catalog is at %d, and clients wait for 2", index)
		}
		// A second handler finds what the first handler made.
		_, err := consulapi.Handler(h.db, nil)
		h.must(err)
		if again := h.db.Snapshot().Index(); again != state.Index() {
			t.Errorf("index went from %d to %d", state.Index(), again)
		}
		// What the program has put on the node stays.
		node.Meta = map[string]string{"rack": "7", "consul.tagged_addresses": `{"lan":"10.0.0.1"}`}
		h.must(h.db.Update(func(tx *lockd.Txn) error { return tx.Catalog().PutNode(node) }))
		_, err = consulapi.Handler(h.db, nil)
		h.must(err)
		if r := h.send("GET /v1/catalog/node/local", ""); !strings.Contains(r.body,
			`"TaggedAddresses":{"lan":"10.0.0.1"},"Meta":{"rack":"7"}`) {
			t.Error(r.body)
		}
		// A node that has an ID is given another.
		const another = "b7e6f3d2-8a2d-4e1b-8a8f-1e6c2d3f4a51"
		_, err = consulapi.Handler(h.db, &consulapi.Options{NodeID: another})
		h.must(err)
		node, _ = h.db.Snapshot().Catalog().Node(h.db.Node())
		if node.ID != another {
			t.Errorf("the node has the ID %s, want %s", node.ID, another)
		}
		_, err = consulapi.Handler(h.db, &consulapi.Options{Node: "other"})
		h.must(err)
		if other, ok := h.db.Snapshot().Catalog().Node("other"); !ok || len(other.ID) != 36 {
			t.Errorf("%+v", other)
		}
	})
}

func TestHandler_ErrInvalid(t *testing.T) {
	db, err := lockd.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	for field, opts := range map[string]consulapi.Options{
		"MinTTL":             {MinTTL: -1},
		"GraceTTLs":          {GraceTTLs: -1},
		"NodeID":             {NodeID: "x"},
		"MaxValueSize":       {MaxValueSize: lockd.MaxValueSize + 1},
		"MaxValueSize is -1": {MaxValueSize: -1},
		"MaxTxnOps":          {MaxTxnOps: -1},
		"MaxBlocked":         {MaxBlocked: -1},

		"MaxSnapshotSize": {MaxSnapshotSize: -1},
	} {
		handler, err := consulapi.Handler(db, &opts)
		if err == nil || handler != nil || !strings.Contains(err.Error(), "Options."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if handler, err := consulapi.Handler(db, nil); err == nil || handler != nil {
		t.Errorf("on a closed database: %v", err)
	}
}

// Ensure that each option may have the least and the greatest value that its error names.
func TestHandler_OptionsAtTheirLimits(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, opts := range []consulapi.Options{
			{MinTTL: lockd.MinTTL}, {MinTTL: 24 * time.Hour}, {GraceTTLs: 10},
			{MaxValueSize: 1}, {MaxValueSize: lockd.MaxValueSize},
		} {
			_, err := consulapi.Handler(h.db, &opts)
			h.must(err)
		}
		for _, opts := range []consulapi.Options{
			{MinTTL: lockd.MinTTL - 1}, {MinTTL: 24*time.Hour + 1}, {GraceTTLs: 11},
		} {
			if _, err := consulapi.Handler(h.db, &opts); !errors.Is(err, lockd.ErrInvalid) {
				t.Errorf("%+v: %v", opts, err)
			}
		}
	})
}

// panics is a body that panics when it is read.
type panics struct{}

func (panics) Read([]byte) (int, error) { panic("a bug") }

// Ensure that a panic costs one request, is answered as an error, and is logged.
func TestHandler_PanicCostsOneRequest(t *testing.T) {
	var log bytes.Buffer
	opts := &consulapi.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	run(t, opts, func(h *harness) {
		r := h.sendAs(h.t.Context(), "PUT /v1/kv/a", panics{})
		if r.code != http.StatusInternalServerError || r.body != "Internal error" {
			t.Errorf("%d %s", r.code, r.body)
		}
		if !strings.Contains(log.String(), "a bug") {
			t.Errorf("log: %s", &log)
		}
		h.put("a", "v")
	})
}

// Ensure that a body that ends the handler gets no answer, which would look like that of a success.
func TestHandler_BodyEndsTheConnection(t *testing.T) {
	run(t, nil, func(h *harness) {
		w := httptest.NewRecorder()
		defer func() {
			if cause := recover(); cause != http.ErrAbortHandler || len(w.Header()) > 0 {
				t.Errorf("the connection is kept, after %v: %v", cause, w.Header())
			}
		}()
		h.ServeHTTP(w, httptest.NewRequest("PUT", "/v1/kv/a", bodyOf(func() {
			panic(http.ErrAbortHandler)
		})))
	})
}

// Ensure that a query's timeout does not wait for the real clock: the test would take an hour.
func TestHandler_WaitsByTheDatabasesClock(t *testing.T) {
	run(t, nil, func(h *harness) {
		replies := h.blocked("GET /v1/kv/a?index=1&wait=10m")
		h.clock.Add(11 * time.Minute)
		if r := h.answered(replies); r.code != 404 {
			t.Errorf("%d", r.code)
		}
	})
}

// brokenWriter panics when the second piece of an answer is written.
type brokenWriter struct {
	*httptest.ResponseRecorder
	pieces int
}

func (w *brokenWriter) Write(p []byte) (int, error) {
	if w.pieces++; w.pieces == 2 {
		panic("a bug")
	}
	return w.ResponseRecorder.Write(p)
}

// Ensure that an answer that a panic cuts off does not end as if it were whole.
func TestHandler_PanicInAnAnswer(t *testing.T) {
	opts := &consulapi.Options{Logger: slog.New(slog.DiscardHandler)}
	run(t, opts, func(h *harness) {
		for _, key := range []string{"a", "b", "c", "d"} {
			h.put(key, strings.Repeat("v", 512<<10)) // too much for one piece
		}
		w := &brokenWriter{ResponseRecorder: httptest.NewRecorder()}
		defer func() {
			if cause := recover(); cause != http.ErrAbortHandler {
				t.Errorf("the connection is kept, after %v", cause)
			}
			if w.pieces < 2 || strings.Contains(w.Body.String(), "Internal error") {
				t.Errorf("%d pieces, of %d bytes", w.pieces, w.Body.Len())
			}
		}()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/snapshot", nil))
	})
}
