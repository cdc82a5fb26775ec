package consulapi_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

// known500 has the texts that a mistake of a client is answered with as 500, as Consul does.
var known500 = regexp.MustCompile(`(?s)^(` + strings.Join([]string{
	``, // a query that cannot be parsed
	`strconv\.ParseUint: .*`,
	`No path to datacenter`,
	`raft apply failed: (missing session|invalid session ".*")`,
	`Must provide Node`,
	`Invalid Behavior setting '.*'`,
	`Session TTL '.*' invalid: .*`,
	`Invalid Session TTL '.*', must be between .*`,
	`apply failed: (Missing node registration|Missing check '.*' registration)`,
}, "|") + `)$`)

// fuzzed is an API that is sent anything. Nothing that it is sent waits: the one place for a
// blocked query is taken.
type fuzzed struct {
	http.Handler
	db *lockd.DB
}

func newFuzzed(f *testing.F) *fuzzed {
	db, err := lockd.New(nil)
	if err != nil {
		f.Fatal(err)
	}
	handler, err := consulapi.Handler(db, &consulapi.Options{MaxBlocked: 1, MaxValueSize: 4096})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	blocked := make(chan struct{})
	go func() {
		defer close(blocked)
		r := httptest.NewRequest("GET", "/v1/kv/blocked?index=1", nil)
		handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
	}()
	f.Cleanup(func() {
		cancel()
		<-blocked
		if err := db.Close(); err != nil {
			f.Error(err)
		}
	})
	return &fuzzed{handler, db}
}

// send sends a request, and fails the test unless the answer is one that a client may get.
func (f *fuzzed) send(
	t *testing.T, method string, target *url.URL, body io.Reader,
) (code int, text string) {
	t.Helper()
	r := httptest.NewRequest(method, "/", body)
	r.URL = target
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	text = w.Body.String()
	if w.Code < 200 || w.Code >= 300 && w.Code < 400 || w.Code > 500 ||
		w.Code == 500 && !known500.MatchString(text) {
		t.Fatalf("%s %s: %d %s", method, target, w.Code, text)
	}
	return w.Code, text
}

// Ensure that what is written under a path is read and deleted under it, and is the key that the
// path says, decoded once; and that every other path is refused.
func FuzzKeyPath(f *testing.F) {
	for _, path := range []string{
		"a", "a/b", "//", "..", "%2F", "%25", "%2541", "a%00b", "%zz", "%", "+", "%FF", "a?b",
		"a#b", "\u00a0", "\u0000", "ü", "?recurse", "?keys", ".", "%E2%82%AC", "/v1/kv/x",
	} {
		f.Add(path)
	}
	api := newFuzzed(f)
	f.Fuzz(func(t *testing.T, path string) {
		target, err := url.ParseRequestURI("/v1/kv/" + path)
		if err != nil || target.RawQuery != "" {
			return // no server takes it, or it is no path
		}
		_, _ = api.db.DeleteAll()
		code, _ := api.send(t, "PUT", target, strings.NewReader("v"))
		key := strings.TrimPrefix(target.Path, "/v1/kv/")
		_, stored := api.db.Get(key)
		printable := !strings.ContainsFunc(target.Path, func(c rune) bool {
			return !unicode.IsPrint(c)
		})
		if want := printable && key != "" && len(key) <= lockd.MaxKeySize; stored != want ||
			stored != (code == 200) || stored != (api.db.Snapshot().Len() == 1) {
			t.Fatalf("PUT %q: %d, key %q stored: %v", path, code, key, stored)
		}
		raw := *target
		raw.RawQuery = "raw"
		if code, text := api.send(t, "GET", &raw, nil); stored && (code != 200 || text != "v") {
			t.Fatalf("GET %q: %d %s", path, code, text)
		}
		if api.send(t, "DELETE", target, nil); api.db.Snapshot().Len() != 0 {
			t.Fatalf("DELETE %q left %q", path, key)
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, query := range []string{
		"", "raw", "recurse", "keys&separator=/", "index=1&wait=1s", "index=x", "wait=x", "cas=1",
		"cas=", "acquire=", "acquire=x&release=y", "flags=18446744073709551616", "dc=x", "ns=x",
		"%zz", ";", "recurse=false", "stale&consistent", "pretty", "index=99999999999", "wait=-1s",
		"release=11111111-2222-3333-4444-555555555555", "partition=y", "a=b=c&&=", "index=1;wait=2",
	} {
		for method := range byte(3) {
			f.Add(method, query)
		}
	}
	api := newFuzzed(f)
	f.Fuzz(func(t *testing.T, method byte, query string) {
		name := []string{"GET", "PUT", "DELETE"}[method%3]
		_, err := api.db.Put("a", []byte("v"), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/v1/kv/a", "/v1/kv/", "/v1/session/list"} {
			target := &url.URL{Path: path, RawQuery: query}
			code, text := api.send(t, name, target, strings.NewReader("w"))
			if _, left := api.db.Get("a"); !left && name != "DELETE" {
				t.Fatalf("%s %s?%s: %d %s, and the key is gone", name, path, query, code, text)
			}
		}
	})
}

// Ensure that a session is made or refused, and that what is made is shown.
func FuzzSessionBody(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `{"Name":"n","TTL":"10s","Behavior":"delete","LockDelay":15}`,
		`{"LockDelay":"1ms"}`, `{"LockDelay":-1}`, `{"LockDelay":1e400}`, `{"LockDelay":[[]]}`,
		`{"lockdelay":999.9,"checks":[]}`, `{"Node":""}`, `{"Node":"x"}`, `{"TTL":"1d"}`,
		`{"TTL":"-9223372036854775808ns"}`, `{"Checks":["x"],"NodeChecks":["y"]}`,
		`{"Checks":null}`,
		`{"ServiceChecks":[{"ID":"x","Namespace":"y"}]}`, `{"Name":"\u0000\ud800"}`, "\xff", `{`,
		`{"NodeChecks":["\u0000"]}`, `{"Name":"a"}{"Name":"b"}`, strings.Repeat(`[`, 4000),
	} {
		f.Add([]byte(body))
	}
	api := newFuzzed(f)
	create, list := &url.URL{Path: "/v1/session/create"}, &url.URL{Path: "/v1/session/list"}
	f.Fuzz(func(t *testing.T, body []byte) {
		code, text := api.send(t, "PUT", create, bytes.NewReader(body))
		n := 0
		for info := range api.db.Snapshot().Sessions() {
			n++
			if code == 200 && !strings.Contains(text, info.ID.String()) {
				t.Fatalf("%s: %s is not %s", body, text, info.ID)
			}
			_, shown := api.send(t, "GET", list, nil)
			if !strings.Contains(shown, info.ID.String()) {
				t.Fatalf("%s: %s", body, shown)
			}
			if err := api.db.EndSession(info.ID); err != nil {
				t.Fatal(err)
			}
		}
		if (n == 1) != (code == 200) || n > 1 {
			t.Fatalf("%s: %d %s, and %d sessions", body, code, text, n)
		}
	})
}

// Ensure that a transaction is done or refused, and that one that is refused changes nothing.
func FuzzTxnBody(f *testing.F) {
	for _, body := range []string{
		``, `[]`, `{}`, `null`, `[null]`, `[{}]`, `[{"Session":{}}]`, `[1]`, "\xff",
		`[{"KV":{"Verb":"set","Key":"a","Value":"dg==","Flags":18446744073709551615}}]`,
		`[{"KV":{"Verb":"get","Key":"a"}},{"KV":{"Verb":"delete-tree","Key":""}}]`,
		`[{"KV":{"Verb":"cas","Key":"a","Index":1}},{"KV":{"Verb":"get-tree","Key":"a"}}]`,
		`[{"KV":{"Verb":"lock","Key":"a","Session":"x"}},{"KV":{"Verb":"unlock","Key":"a"}}]`,
		`[{"KV":{"Verb":"check-session","Key":"a"}},{"KV":{"Verb":"check-index","Key":"a"}}]`,
		`[{"KV":{"Verb":"check-not-exists","Key":"b"}},{"KV":{"Verb":"delete-cas","Key":"b"}}]`,
		`[{"KV":{"Verb":"set","Key":"b"}},{"KV":{"Verb":"x","Key":"a"}}]`, `[{"KV":{"Key":""}}]`,
		`[{"KV":{"Verb":"delete","Key":"a"}}]`, `[{"KV":{"Verb":"set","Key":"\u0000"}}]`,
		"[" + strings.Repeat(`{"KV":null},`, 64) + "{}]",
		`[{"Node":{"Verb":"set","Node":{"Node":"n","ID":"i","Meta":{"a":"b"}}}},` +
			`{"Service":{"Verb":"cas","Node":"n","Service":{"Service":"s","Tags":["t"]}}},` +
			`{"Check":{"Verb":"set","Check":{"Node":"n","Name":"c","Status":"passing"}}}]`,
		`[{"Node":{"Verb":"delete","Node":{"Node":"local"}}}]`,
	} {
		f.Add([]byte(body))
	}
	api := newFuzzed(f)
	txn := &url.URL{Path: "/v1/txn"}
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := api.db.Put("a", []byte("v"), nil); err != nil {
			t.Fatal(err)
		}
		before := api.db.Snapshot().Index()
		code, text := api.send(t, "PUT", txn, bytes.NewReader(body))
		if after := api.db.Snapshot().Index(); code != 200 && after != before {
			t.Fatalf("%s: %d %s, and the index went from %d to %d", body, code, text, before, after)
		}
	})
}
