package consulapi_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

// known500 has the texts of mistakes by clients that are answered with 500, as Consul does.
var known500 = regexp.MustCompile(`(?s)^(` + strings.Join([]string{
	``, // a query that cannot be parsed
	`Query given up: context canceled`,
	`strconv\.ParseUint: .*`,
	`No path to datacenter`,
	`raft apply failed: (missing session|invalid session ".*")`,
	`Must provide Node`,
	`Invalid Behavior setting '.*'`,
	`Session TTL '.*' invalid: .*`,
	`Invalid Session TTL '.*', must be between .*`,
	`apply failed: (Missing node registration|Missing check '.*' registration)`,
	`Must provide (node|address if SkipNodeUpdate is not set|service name( with ID)?)`,
	`Must provide check ID or name`,
	`Bad node ID: .*`,
	`failed inserting node: Error while renaming Node ID: ".*": .* is reserved by node .*`,
	`Invalid service address`,
	`Node '.*' for check '.*' doesn't match register request node '.*'`,
	`Bad limit: .*`,
	`Invalid prepared query: (Bad DNS TTL '.*': .*|DNS TTL '.*', must be >=0)`,
	`Invalid prepared query: Bad NearestN '.*', must be >= 0`,
	`Unknown service ID '.*' for check ID '.*'`,
	`Missing node registration`,
	`ID must be empty when creating a new prepared query`,
	`Invalid prepared query: Must (be bound to a session|provide a Service name to query)`,
	`raft apply failed: name '.*' aliases an existing query (name|ID)`,
}, "|") + `)$`)

// fuzzed is an API for any request, whose time does not pass. No request waits: the client of a
// query that would block is gone.
type fuzzed struct {
	http.Handler
	db *lockd.DB
}

func newFuzzed(tb testing.TB) *fuzzed {
	db, err := lockd.New(&lockd.Options{Clock: clock.NewMock()})
	if err != nil {
		tb.Fatal(err)
	}
	handler, err := consulapi.Handler(db, &consulapi.Options{MaxValueSize: 4096})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Error(err)
		}
	})
	return &fuzzed{handler, db}
}

// send sends a request, and fails the test unless a client may get such an answer.
func (f *fuzzed) send(
	t *testing.T, method string, target *url.URL, body io.Reader,
) (code int, text string) {
	t.Helper()
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	r := httptest.NewRequestWithContext(gone, method, "/", body)
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

// Ensure that a value written under a path is read and deleted under it, that its key is the path
// decoded once, and that every other path is refused.
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

// Ensure that a session is made or refused, and that a new session is shown.
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

// Ensure that a transaction is done or refused, and that a refused transaction changes nothing.
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

// newFuzzedCatalog returns an API with something in its catalog, and the ID of a session.
func newFuzzedCatalog(t *testing.T) (api *fuzzed, session string) {
	t.Helper()
	api = newFuzzed(t)
	must := func(path, body string) (text string) {
		t.Helper()
		code, text := api.send(t, "PUT", &url.URL{Path: path}, strings.NewReader(body))
		if code != 200 {
			t.Fatalf("%s %s: %d %s", path, body, code, text)
		}
		return text
	}
	must("/v1/catalog/register", `{"Node":"n","Address":"a","Service":{"ID":"s1","Service":"s"},
		"Check":{"Name":"c","Status":"passing","ServiceID":"s1"}}`)
	must("/v1/agent/service/register", `{"Name":"web","Check":{"TTL":"1s","Status":"passing"}}`)
	must("/v1/agent/check/register", `{"Name":"beat","TTL":"1s","Status":"passing"}`)
	made := must("/v1/session/create", `{"Checks":["beat"]}`)
	return api, strings.TrimSuffix(strings.TrimPrefix(made, `{"ID":"`), `"}`)
}

// submit sends a body, and fails the test unless a refusal changes nothing, and everything in the
// catalog can be read afterwards.
func (f *fuzzed) submit(
	t *testing.T, method, path string, body []byte,
) (code int, text string) {
	t.Helper()
	before := f.db.Snapshot().Index()
	code, text = f.send(t, method, &url.URL{Path: path}, bytes.NewReader(body))
	if after := f.db.Snapshot().Index(); code != 200 && after != before {
		t.Fatalf("%s: %d %s, and the index went from %d to %d", body, code, text, before, after)
	}
	for _, path := range []string{
		"catalog/nodes", "catalog/services", "catalog/node/n", "catalog/service/s",
		"health/state/any", "health/service/s", "agent/self", "agent/checks", "agent/services",
		"session/list", "query",
	} {
		code, shown := f.send(t, "GET", &url.URL{Path: "/v1/" + path}, nil)
		if code != 200 || !json.Valid([]byte(shown)) {
			t.Fatalf("%s: %s, and then %s: %d %s", body, text, path, code, shown)
		}
	}
	return code, text
}

// Ensure that a request to the catalog is done or refused.
func FuzzCatalogBody(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `1`, "\xff", `{`, `{"Node":"m","Address":"b"}`, `{"Node":"n"}`,
		`{"Node":"N","SkipNodeUpdate":true}`, `{"Node":"m","Address":"b","ID":"x"}`,
		`{"Node":"n","Address":"b","ID":"40e4a748-2192-161a-0510-9bf59fe950b5"}`,
		`{"Node":"n","Address":"b","NodeMeta":{"a":"b"},"TaggedAddresses":{"lan":"c"}}`,
		`{"Node":"m","Address":"b","Service":{"Service":"t","Tags":["a",""],"Port":-1,
			"Meta":{"":""},"Weights":{"Passing":0}}}`,
		`{"Node":"m","Address":"b","Service":{"ID":"t"}}`, `{"Node":"m","Address":"b","x":1}`,
		`{"Node":"n","Address":"b","Check":{"CheckID":"c","ServiceID":"none"}}`,
		`{"Node":"n","SkipNodeUpdate":true,"Checks":[{"Node":"m","Name":"d"},{"Name":"c"}]}`,
		`{"Node":"n","Address":"b","Check":{"Name":"d","Status":"x","Definition":{"TTL":[1]}}}`,
		`{"Node":"local","Address":"b","Check":{"CheckID":"serfHealth","Status":"critical"}}`,
		`{"Node":"n","ServiceID":"s1"}`, `{"Node":"n","CheckID":"c"}`, `{"Node":"local"}`,
		`{"Node":"n","Datacenter":"dc2"}`, `{"Node":"local","CheckID":"beat"}`,
		`{"Node":"\u0000\ud800","Address":"\u0000"}`, strings.Repeat(`[`, 4097),
	} {
		f.Add(byte(0), []byte(body))
		f.Add(byte(1), []byte(body))
	}
	f.Fuzz(func(t *testing.T, path byte, body []byte) {
		api, _ := newFuzzedCatalog(t)
		name := []string{"register", "deregister"}[path%2]
		if code, _ := api.submit(t, "PUT", "/v1/catalog/"+name, body); code != 200 {
			return
		}
		var sent struct{ Node, ServiceID, CheckID string }
		if err := json.NewDecoder(bytes.NewReader(body)).Decode(&sent); err != nil {
			t.Fatalf("%s: is accepted: %v", body, err)
		}
		state := api.db.Snapshot()
		_, is := state.Catalog().Node(sent.Node)
		if name == "deregister" && sent.ServiceID != "" {
			_, is = state.Catalog().Service(sent.Node, sent.ServiceID)
		} else if name == "deregister" && sent.CheckID != "" {
			_, is = state.Catalog().Check(sent.Node, sent.CheckID)
		}
		if is != (name == "register") {
			t.Fatalf("%s %s: it is there: %v", name, body, is)
		}
	})
}

// Ensure that a request to the agent is done or refused.
func FuzzAgentBody(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `"x"`, "\xff", `{`, `{"Name":"a"}`, `{"Name":"a","TTL":"1s"}`,
		`{"Name":"a","TTL":1e9}`, `{"Name":"a","TTL":1e400}`, `{"name":"a","ttl":"-1s"}`,
		`{"ID":"b","CheckID":"c","Name":"a","TTL":1000000000,"Status":"warning","Notes":"n"}`,
		`{"Name":"a","TTL":"1s","ServiceID":"web"}`, `{"Name":"a","TTL":"1s","ServiceID":"x"}`,
		`{"Name":"serfHealth","TTL":"1s","Status":"critical"}`, `{"Name":"beat","TTL":"9h"}`,
		`{"Name":"a","HTTP":"http://h","Interval":"1s"}`, `{"Name":"a","Args":["x"]}`,
		`{"Name":"a","ID":"web","Port":99999,"Tags":["t","t"],"Meta":{"k":"v"},"Address":"\u0000"}`,
		`{"Name":"a","Check":{"TTL":"1s"},"Checks":[{"TTL":"2s"},{"CheckID":"beat","TTL":"3s"}]}`,
		`{"Name":"a","Checks":[{"TTL":"1s","ServiceID":"web"},null]}`, `{"Name":"a","Checks":null}`,
		`{"Status":"critical","Output":"o"}`, `{"Status":"passing"}`, `{"Status":"x"}`,
		`{"Name":"\ud800","TTL":"106751d"}`, `{"Name":"a","TTL":9223372036854775807}`,
	} {
		for path := range byte(3) {
			f.Add(path, []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, path byte, body []byte) {
		api, _ := newFuzzedCatalog(t)
		name := []string{"check/register", "service/register", "check/update/beat"}[path%3]
		if code, _ := api.submit(t, "PUT", "/v1/agent/"+name, body); code != 200 {
			return
		}
		var sent struct{ ID, CheckID, Name, Status string }
		if err := json.NewDecoder(bytes.NewReader(body)).Decode(&sent); err != nil {
			t.Fatalf("%s %s: is accepted: %v", name, body, err)
		}
		state, is := api.db.Snapshot(), false
		switch name {
		case "check/register":
			_, is = state.Catalog().Check("local", cmp.Or(sent.ID, sent.CheckID, sent.Name))
		case "service/register":
			_, is = state.Catalog().Service("local", cmp.Or(sent.ID, sent.Name))
		default:
			beat, _ := state.Catalog().Check("local", "beat")
			is = beat.Status.String() == sent.Status
		}
		if !is {
			t.Fatalf("%s %s: is accepted, and not there", name, body)
		}
	})
}

// Ensure that a query is kept or refused, also in place of another query, and that a kept query is
// shown and can be executed. SESSION in a body stands for the ID of a session.
func FuzzQueryBody(f *testing.F) {
	for _, body := range []string{
		``, `{}`, `null`, `[]`, `1`, "\xff", `{`, `{"Name":"q"}`, `{"Service":{"Service":"s"}}`,
		`{"Name":"q","Service":{"Service":"s"}}`, `{"Name":"taken","Service":{"Service":"s"}}`,
		`{"Session":"SESSION","Service":{"Service":"s"}}`,
		`{"Session":"x","Service":{"Service":"s"}}`,
		`{"Session":"40e4a748-2192-161a-0510-9bf59fe950b5","Service":{"Service":"s"}}`,
		`{"ID":"x","Name":"q","Service":{"Service":"s"}}`,
		`{"Name":"q","Template":{"Type":"name_prefix_match","Regexp":"("}}`,
		`{"Name":"q","Service":{"Service":"s","Tags":["!a","!",""],"OnlyPassing":true,
			"NodeMeta":{"a":"b"},"ServiceMeta":{"":""},"IgnoreCheckIDs":["c"],"Near":"_agent",
			"Failover":{"NearestN":-1,"Datacenters":["dc2"]}},"DNS":{"TTL":"x"}}`,
		`{"Name":"\u0000\ud800/execute","Service":{"Service":"\u0000"},"Token":"t"}`,
		`{"name":"q","NAME":"r","service":{"SERVICE":"S"},"CreateIndex":9,"ModifyIndex":9}`,
	} {
		f.Add(byte(0), []byte(body))
		f.Add(byte(1), []byte(body))
	}
	f.Fuzz(func(t *testing.T, method byte, body []byte) {
		api, session := newFuzzedCatalog(t)
		body = bytes.ReplaceAll(body, []byte("SESSION"), []byte(session))
		post := func(body []byte) (code int, id string) {
			t.Helper()
			code, text := api.submit(t, "POST", "/v1/query", body)
			id = strings.TrimSuffix(strings.TrimPrefix(text, `{"ID":"`), `"}`)
			return code, id
		}
		_, id := post([]byte(`{"Name":"taken","Service":{"Service":"s"}}`))
		var code int
		if method%2 == 0 {
			code, id = post(body)
		} else {
			code, _ = api.submit(t, "PUT", "/v1/query/"+id, body)
		}
		if code != 200 {
			return
		}
		for _, path := range []string{"/v1/query/" + id, "/v1/query/" + id + "/execute"} {
			if code, text := api.send(t, "GET", &url.URL{Path: path}, nil); code != 200 {
				t.Fatalf("%s: is kept, and then %s: %d %s", body, path, code, text)
			}
		}
	})
}
