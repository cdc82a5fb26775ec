package consulapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/consulapi"
)

// sessionInfo is a session as a client sees it.
type sessionInfo struct {
	ID, Name, Node           string
	LockDelay                time.Duration
	Behavior, TTL            string
	NodeChecks               []string
	ServiceChecks            []struct{ ID, Namespace string }
	Checks                   []string
	CreateIndex, ModifyIndex uint64
}

// create makes a session from the body, which must succeed, and returns it as it is shown.
func (h *harness) create(body string) sessionInfo {
	h.t.Helper()
	made := decode[struct{ ID string }](h, h.send("PUT /v1/session/create", body))
	return h.info(made.ID)
}

// info returns a session, which must live.
func (h *harness) info(id string) sessionInfo {
	h.t.Helper()
	sessions := decode[[]sessionInfo](h, h.send("GET /v1/session/info/"+id, ""))
	if len(sessions) != 1 {
		h.t.Fatalf("%d sessions", len(sessions))
	}
	return sessions[0]
}

// register puts node "ext" into the catalog, with checks "alive", "warn" and "dead".
func (h *harness) register() {
	h.t.Helper()
	h.must(h.db.Update(func(tx *lockd.Txn) error {
		if err := tx.Catalog().PutNode(catalog.Node{Name: "ext"}); err != nil {
			return err
		}
		for id, status := range map[string]catalog.Status{
			"alive": catalog.Passing, "warn": catalog.Warning, "dead": catalog.Critical,
		} {
			c := catalog.Check{Node: "ext", Name: id, Status: status}
			if err := tx.Catalog().PutCheck(c); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Ensure that a missing body, an empty object and null all mean the defaults.
func TestSession_S4S2S3_Defaults(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, body := range []string{"", "{}", "null", `{"LockDelay":null,"TTL":null}`} {
			s := h.create(body)
			want := sessionInfo{
				ID: s.ID, Node: "local", LockDelay: 15 * time.Second, Behavior: "release",
				NodeChecks: []string{"serfHealth"}, CreateIndex: s.CreateIndex,
				ModifyIndex: s.CreateIndex,
			}
			if !reflect.DeepEqual(s, want) || len(s.ID) != 36 || s.CreateIndex < 2 {
				t.Errorf("%q: %+v, not %+v", body, s, want)
			}
		}
	})
}

// Ensure that the members come in Consul's order, and that absent values look as in Consul.
func TestSession_S1_JSON(t *testing.T) {
	run(t, nil, func(h *harness) {
		r := h.send("PUT /v1/session/create", `{"Name":"<me>","TTL":"0500s"}`)
		id := decode[struct{ ID string }](h, r).ID
		if want := `{"ID":"` + id + `"}`; r.body != want {
			t.Errorf("%s, not %s", r.body, want)
		}
		h.want("GET /v1/session/info/"+id, "", 200, fmt.Sprintf(
			`[{"ID":"%s","Name":"\u003cme\u003e","Node":"local","LockDelay":15000000000,`+
				`"Behavior":"release","TTL":"0500s","NodeChecks":["serfHealth"],`+
				`"ServiceChecks":null,"CreateIndex":%d,"ModifyIndex":%[2]d}]`,
			id, h.info(id).CreateIndex))
	})
}

// Ensure that a session that the library has made is shown too.
func TestSession_S1_OfTheLibrary(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.register()
		s := h.session(&lockd.SessionOptions{Name: "n", TTL: 90 * time.Second,
			LockDelay: lockd.NoLockDelay, Behavior: lockd.DeleteKeys, Node: "ext",
			Checks: []string{"alive"}})
		want := sessionInfo{ID: s.ID().String(), Name: "n", Node: "ext", TTL: "1m30s",
			Behavior: "delete", NodeChecks: []string{"alive"},
			CreateIndex: s.Info().CreateIndex, ModifyIndex: s.Info().CreateIndex}
		if got := h.info(s.ID().String()); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, not %+v", got, want)
		}
		plain := h.info(h.session(nil).ID().String())
		if plain.TTL != "" || plain.NodeChecks == nil || plain.LockDelay != 15*time.Second {
			t.Errorf("%+v", plain)
		}
	})
}

// Ensure that a chunked body counts like any other.
func TestSession_S5X16_ChunkedBody(t *testing.T) {
	run(t, &consulapi.Options{MaxValueSize: 100}, func(h *harness) {
		r := h.sendAs(h.t.Context(), "PUT /v1/session/create", chunked(`{"Name":"chunked"}`))
		if s := h.info(decode[struct{ ID string }](h, r).ID); s.Name != "chunked" {
			t.Errorf("%+v", s)
		}
		large := `{"Name":"` + strings.Repeat("x", 100) + `"}`
		if r := h.sendAs(h.t.Context(), "PUT /v1/session/create", chunked(large)); r.code != 413 {
			t.Errorf("chunked: %d %s", r.code, r.body)
		}
		h.want("PUT /v1/session/create", large, 413,
			"Request body(111 bytes) too large, max size: 100 bytes.")
		for _, path := range []string{"catalog/register", "agent/check/register"} {
			h.want("PUT /v1/"+path, large, 413,
				"Request body(111 bytes) too large, max size: 100 bytes.")
		}
		broken := io.MultiReader(strings.NewReader("{}"), brokenReader{})
		if r := h.sendAs(h.t.Context(), "PUT /v1/session/create", broken); r.code != 400 {
			t.Errorf("broken off: %d %s", r.code, r.body)
		}
	})
}

func TestSession_S6_Leniency(t *testing.T) {
	run(t, nil, func(h *harness) {
		s := h.create(`{"name":"n","lockdelay":"3s","ttl":"20s","behavior":"delete","Bogus":1,` +
			`"ID":"x","CreateIndex":7,"Namespace":"y","checks":[]} and more`)
		if s.Name != "n" || s.LockDelay != 3*time.Second || s.TTL != "20s" ||
			s.Behavior != "delete" || len(s.ID) != 36 || s.CreateIndex == 7 ||
			len(s.NodeChecks) != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Ensure that the three members for checks resolve as in Consul.
func TestSession_S7S8X31_Checks(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.must(h.db.Update(func(tx *lockd.Txn) error {
			return tx.Catalog().PutCheck(catalog.Check{
				Node: "local", Name: "x", Status: catalog.Passing,
			})
		}))
		for _, test := range []struct{ body, checks, nodeChecks, bound string }{
			{`{}`, `null`, `["serfHealth"]`, `[serfHealth]`},
			{`{"NodeChecks":["x"]}`, `null`, `["x"]`, `[x]`},
			{`{"Checks":["x"]}`, `["x"]`, `["serfHealth"]`, `[x serfHealth]`},
			{`{"Checks":["x"],"NodeChecks":[]}`, `null`, `[]`, `[]`},
			{`{"Checks":["x"],"NodeChecks":["X"]}`, `["x"]`, `["X"]`, `[x]`},
			{`{"Checks":["serfHealth"],"NodeChecks":null}`, `null`, `null`, `[]`},
			{`{"Checks":[]}`, `null`, `[]`, `[]`},
			{`{"Checks":null,"NodeChecks":["x"]}`, `null`, `[]`, `[]`},
			{`{"NodeChecks":[]}`, `null`, `[]`, `[]`},
			{`{"NodeChecks":null}`, `null`, `null`, `[]`},
			{`{"ServiceChecks":[{"ID":"x"}]}`, `null`, `["serfHealth"]`, `[serfHealth x]`},
		} {
			s := h.create(test.body)
			checks, _ := json.Marshal(s.Checks)
			nodeChecks, _ := json.Marshal(s.NodeChecks)
			if string(checks) != test.checks || string(nodeChecks) != test.nodeChecks {
				t.Errorf("%s: Checks %s, NodeChecks %s", test.body, checks, nodeChecks)
			}
			id, err := lockd.ParseSessionID(s.ID)
			h.must(err)
			info, _ := h.db.Snapshot().Session(id)
			if got := fmt.Sprint(info.Checks); got != test.bound {
				t.Errorf("%s: bound to %s, not %s", test.body, got, test.bound)
			}
		}
		s := h.create(`{"ServiceChecks":[{"ID":"x","Namespace":"y"}]}`)
		if len(s.ServiceChecks) != 1 || s.ServiceChecks[0].ID != "x" ||
			s.ServiceChecks[0].Namespace != "y" {
			t.Errorf("%+v", s.ServiceChecks)
		}
		if s := h.create(`{"ServiceChecks":[]}`); s.ServiceChecks == nil {
			t.Error("an empty list is shown as null")
		}
	})
}

// Ensure that errors have Consul's texts, and come in Consul's order.
func TestSession_S9S10S11S12S13S14_Refusals(t *testing.T) {
	run(t, nil, func(h *harness) {
		const all = `"Behavior":"x","TTL":"15"}`
		for _, test := range []struct {
			body string
			code int
			text string
		}{
			{`{"Node":"",` + all, 500, "Must provide Node"},
			{`{"Node":"none",` + all, 500, "Invalid Behavior setting 'x'"},
			{`{"Behavior":"Delete"}`, 500, "Invalid Behavior setting 'Delete'"},
			{`{"TTL":"15","Node":"none"}`, 500,
				`Session TTL '15' invalid: time: missing unit in duration "15"`},
			{`{"TTL":"1d"}`, 500,
				`Session TTL '1d' invalid: time: unknown unit "d" in duration "1d"`},
			{`{"TTL":"9s"}`, 500,
				"Invalid Session TTL '9000000000', must be between [10s=24h0m0s]"},
			{`{"TTL":"-1s"}`, 500,
				"Invalid Session TTL '-1000000000', must be between [10s=24h0m0s]"},
			{`{"TTL":"24h1ns"}`, 500,
				"Invalid Session TTL '86400000000001', must be between [10s=24h0m0s]"},
		} {
			h.want("PUT /v1/session/create", test.body, test.code, test.text)
		}
		for _, body := range []string{
			` `, `{`, `[]`, `"x"`, `1`, `{"TTL":15}`, `{"Name":1}`, `{"Checks":"x"}`, `{"Node":[]}`,
			`{"ServiceChecks":["x"]}`, "\xff", `{"Behavior":true}`, `{"ID":1}`,
			`{"CreateIndex":"x"}`, `{"ModifyIndex":-1}`,
		} {
			r := h.send("PUT /v1/session/create", body)
			if r.code != 400 || !strings.HasPrefix(r.body, "Bad request: Request decode failed: ") {
				t.Errorf("%s: %d %s", body, r.code, r.body)
			}
		}
		long := `{"Name":"` + strings.Repeat("x", lockd.MaxKeySize+1) + `"}`
		if r := h.send("PUT /v1/session/create", long); r.code != 400 ||
			!strings.HasSuffix(r.body, "SessionOptions.Name has 16385 bytes, more than 16384") {
			t.Errorf("a long name: %d %s", r.code, r.body)
		}
		h.want("GET /v1/session/list", "", 200, "[]")
	})
}

func TestSession_S15S20_TTLs(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, ttl := range []string{"", "0", "0s", "10s", "24h", "10000ms"} {
			if s := h.create(`{"TTL":"` + ttl + `"}`); s.TTL != ttl {
				t.Errorf("TTL %q is shown as %q", ttl, s.TTL)
			}
		}
	})
}

func TestSession_S13_MinTTLIsAnOption(t *testing.T) {
	run(t, &consulapi.Options{MinTTL: time.Second}, func(h *harness) {
		h.create(`{"TTL":"1s"}`)
		h.want("PUT /v1/session/create", `{"TTL":"999ms"}`, 500,
			"Invalid Session TTL '999000000', must be between [1s=24h0m0s]")
	})
}

// Ensure that a session may have very many checks, and shows them as they were sent.
func TestSession_S7_ManyChecks(t *testing.T) {
	run(t, nil, func(h *harness) {
		ids := []string{"alive"}
		register := func(id string) string {
			return fmt.Sprintf(`{"Name":%q,"TTL":"1h","Status":"passing"}`, id)
		}
		for i := range 1000 {
			id := fmt.Sprintf("a-check-with-a-name-of-some-length-%d", i)
			h.want("PUT /v1/agent/check/register", register(id), 200, "")
			ids = append(ids, id)
		}
		h.want("PUT /v1/agent/check/register", register(ids[0]), 200, "")
		nodeChecks, _ := json.Marshal(ids)
		s := h.create(`{"Checks":["alive"],"NodeChecks":` + string(nodeChecks) +
			`,"ServiceChecks":[{"ID":"ALIVE","Namespace":"n"},{"ID":"alive"}]}`)
		services := []struct{ ID, Namespace string }{{"ALIVE", "n"}, {"alive", ""}}
		if !slices.Equal(s.NodeChecks, ids) || !slices.Equal(s.Checks, ids[:1]) ||
			!slices.Equal(s.ServiceChecks, services) {
			t.Errorf("%v", s)
		}
		h.want("PUT /v1/agent/check/fail/"+ids[1000], "", 200, "")
		h.want("GET /v1/session/info/"+s.ID, "", 200, "[]")
	})
}

// Ensure that a Meta that another program wrote does no harm.
func TestSession_S1_ForeignMeta(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, meta := range []string{
			`{"NodeChecks":1000000000000}`, `{"NodeChecks":-1}`, `[]`, `null`, `x`,
			`{"Checks":2,"Repeated":{"1":"x"}}`,
		} {
			s := h.session(&lockd.SessionOptions{Meta: map[string]string{"consul": meta}})
			if got := h.info(s.ID().String()); got.ID != s.ID().String() {
				t.Errorf("%s: %+v", meta, got)
			}
		}
	})
}

func TestSession_S16S17S18_NodeAndChecks(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.register()
		h.want("PUT /v1/session/create", `{"Node":"none"}`, 500,
			"apply failed: Missing node registration")
		h.want("PUT /v1/session/create", `{"Node":"ext"}`, 500,
			"apply failed: Missing check 'serfHealth' registration")
		h.want("PUT /v1/session/create", `{"Node":"ext","NodeChecks":["alive","dead"]}`, 500,
			"apply failed: Check 'dead' is in critical state")
		s := h.create(`{"Node":"EXT","NodeChecks":["ALIVE","warn"]}`)
		if s.Node != "EXT" {
			t.Errorf("%+v", s)
		}
		h.want("PUT /v1/session/create", `{"ServiceChecks":[{"ID":"dne"}]}`, 500,
			"apply failed: Missing check 'dne' registration")
	})
}

func TestSession_S19_Methods(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, path := range []string{"create", "destroy/x", "renew/x"} {
			r := h.want("POST /v1/session/"+path, "", 405, "method POST not allowed")
			if allow := r.header.Get("Allow"); allow != "OPTIONS,PUT" {
				t.Errorf("%s: Allow is %q", path, allow)
			}
		}
		h.want("PUT /v1/session/list", "", 405, "method PUT not allowed")
	})
}

// Ensure that a numeric lock-delay below 1,000 counts seconds, that a text means what it says, and
// that nonsense is refused.
func TestSession_S21X6_LockDelay(t *testing.T) {
	run(t, nil, func(h *harness) {
		for sent, want := range map[string]time.Duration{
			`15`: 15 * time.Second, `"15s"`: 15 * time.Second, `0`: 0, `"0s"`: 0, `"0"`: 0,
			`999`: 999 * time.Second, `1.5`: time.Second, `0.5`: 0, `999.9`: 999 * time.Second,
			`1000`: time.Microsecond, `60000`: 60 * time.Microsecond,
			`15000000000`: 15 * time.Second, `"1us"`: time.Microsecond,
			`"500us"`: 500 * time.Microsecond, `"90s"`: 90 * time.Second, `"20ns"`: 20,
			`null`: 15 * time.Second,
		} {
			if s := h.create(`{"LockDelay":` + sent + `}`); s.LockDelay != want {
				t.Errorf("%s is shown as %v, not %v", sent, s.LockDelay, want)
			}
		}
		for _, sent := range []string{
			`-5`, `"-5s"`, `-5e18`, `"15"`, `""`, `"abc"`, `true`, `[]`, `{}`, `1e400`, `1e19`,
		} {
			r := h.send("PUT /v1/session/create", `{"LockDelay":`+sent+`}`)
			if r.code != 400 || !strings.HasPrefix(r.body, "Bad request: Request decode failed: ") {
				t.Errorf("%s: %d %s", sent, r.code, r.body)
			}
		}
	})
}

// Ensure that a lock-delay above the limit is capped when it begins, and that 0 means no delay.
func TestSession_S22S32S33_LockDelayIsCapped(t *testing.T) {
	run(t, nil, func(h *harness) {
		long, none := h.create(`{"LockDelay":"90s"}`), h.create(`{"LockDelay":0}`)
		h.want("PUT /v1/kv/long?acquire="+long.ID, "", 200, "true")
		h.want("PUT /v1/kv/none?acquire="+none.ID, "", 200, "true")
		h.want("PUT /v1/session/destroy/"+long.ID, "", 200, "true")
		h.want("PUT /v1/session/destroy/"+none.ID, "", 200, "true")
		next := h.create("").ID
		h.want("PUT /v1/kv/none?acquire="+next, "", 200, "true")
		h.advance(time.Minute - 1)
		h.want("PUT /v1/kv/long?acquire="+next, "", 200, "false")
		h.advance(1)
		h.want("PUT /v1/kv/long?acquire="+next, "", 200, "true")
	})
}

func TestSession_S24S25_Renew(t *testing.T) {
	run(t, nil, func(h *harness) {
		s := h.create(`{"TTL":"10s","Name":"n"}`)
		shown := h.send("GET /v1/session/info/"+s.ID, "")
		for range 3 {
			h.advance(9 * time.Second)
			r := h.want("PUT /v1/session/renew/"+strings.ToUpper(s.ID), "", 200, shown.body)
			if r.header.Get("X-Consul-Index") != "" {
				t.Errorf("headers are %v", r.header)
			}
		}
		h.advance(10 * time.Second)
		h.want("PUT /v1/session/renew/"+s.ID, "", 404, "Session id '"+s.ID+"' not found")
		h.want("PUT /v1/session/renew/nope", "", 404, "Session id 'nope' not found")
		h.want("PUT /v1/session/renew/", "", 400, "Bad request: Missing session")
		h.want("PUT /v1/session/renew/"+s.ID+"?index=x", "", 400, "Invalid index")
		forever := h.create("")
		h.want("PUT /v1/session/renew/"+forever.ID, "", 200,
			h.send("GET /v1/session/info/"+forever.ID, "").body)
	})
}

// Ensure that a TTL is exact by default, and has the grace that the options give it.
func TestSession_S26S27_Grace(t *testing.T) {
	for _, ttls := range []int{0, 1} {
		run(t, &consulapi.Options{GraceTTLs: ttls}, func(h *harness) {
			s := h.create(`{"TTL":"10s"}`)
			h.advance(5 * time.Second)
			h.want("PUT /v1/kv/l?acquire="+s.ID, "", 200, "true") // does not renew the session
			h.advance(time.Duration(ttls)*10*time.Second + 5*time.Second - 1)
			if s := h.info(s.ID); s.TTL != "10s" {
				t.Errorf("%+v", s)
			}
			h.advance(1)
			h.want("GET /v1/session/info/"+s.ID, "", 200, "[]")
		})
	}
}

func TestSession_S35S36_Destroy(t *testing.T) {
	run(t, nil, func(h *harness) {
		s := h.create("").ID
		h.want("PUT /v1/kv/l?acquire="+s, "v", 200, "true")
		for _, id := range []string{s, s, "11111111-2222-3333-4444-555555555555", "garbage"} {
			h.want("PUT /v1/session/destroy/"+id, "", 200, "true")
		}
		h.want("PUT /v1/session/destroy/", "", 400, "Bad request: Missing session")
		h.want("GET /v1/session/info/"+s, "", 200, "[]")
		if e := h.entry("l"); e.Session != "" || string(e.Value) != "v" || e.LockIndex != 1 {
			t.Errorf("%+v", e)
		}
		h.want("PUT /v1/kv/other?acquire="+s, "", 500,
			`raft apply failed: invalid session "`+s+`"`)
	})
}

func TestSession_K34_Delete(t *testing.T) {
	run(t, nil, func(h *harness) {
		s := h.create(`{"Behavior":"delete"}`).ID
		h.want("PUT /v1/kv/l?acquire="+s, "v", 200, "true")
		replies := h.blocked(at("GET /v1/kv/l?raw", h.entry("l").ModifyIndex))
		h.want("PUT /v1/session/destroy/"+s, "", 200, "true")
		if r := h.answered(replies); r.code != 404 {
			t.Errorf("%d %s", r.code, r.body)
		}
	})
}

func TestSession_S2S37S39_Reads(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.register()
		first, second := h.create(""), h.create(`{"Node":"Ext","Checks":[]}`)
		list := decode[[]sessionInfo](h, h.send("GET /v1/session/list", ""))
		if len(list) != 2 || list[0].ID >= list[1].ID {
			t.Errorf("%+v", list)
		}
		for node, id := range map[string]string{"LOCAL": first.ID, "eXt": second.ID} {
			of := decode[[]sessionInfo](h, h.send("GET /v1/session/node/"+node, ""))
			if len(of) != 1 || of[0].ID != id {
				t.Errorf("%s: %+v", node, of)
			}
		}
		if got := h.info(strings.ToUpper(first.ID)); got.ID != first.ID {
			t.Errorf("%+v", got)
		}
		h.want("GET /v1/session/node/none", "", 200, "[]")
		h.want("GET /v1/session/info/none", "", 200, "[]")
		h.want("GET /v1/session/info/", "", 400, "Bad request: Missing session")
		h.want("GET /v1/session/info", "", 400, "Bad request: Missing session")
		h.want("GET /v1/session/node/", "", 400, "Bad request: Missing node name")
	})
}

// Ensure that clients can wait for sessions: for the end of one, or for any change of all.
func TestSession_S38S40B8_Blocking(t *testing.T) {
	run(t, nil, func(h *harness) {
		s := h.create("")
		one := h.blocked(at("GET /v1/session/info/"+s.ID+"?x", s.CreateIndex))
		unknown := h.blocked("GET /v1/session/info/11111111-2222-3333-4444-555555555555?index=1")
		list := h.blocked(at("GET /v1/session/list?x", s.CreateIndex))
		node := h.blocked(at("GET /v1/session/node/local?x", s.CreateIndex))
		h.put("a", "v")
		h.want("PUT /v1/session/renew/"+s.ID, "", 200,
			h.send("GET /v1/session/info/"+s.ID, "").body)
		h.waits(list)
		other := h.create("")
		for _, replies := range []<-chan reply{list, node} {
			if got := decode[[]sessionInfo](h, h.answered(replies)); len(got) != 2 {
				t.Errorf("%+v", got)
			}
		}
		h.waits(one)
		h.want("PUT /v1/session/destroy/"+s.ID, "", 200, "true")
		r := h.answered(one)
		if r.body != "[]" || r.index() <= other.CreateIndex {
			t.Errorf("%s at %d", r.body, r.index())
		}
		h.waits(unknown)
	})
}

// Ensure that a session of the API outlives the process, as a session of Consul does.
func TestSession_S28_Independent(t *testing.T) {
	run(t, nil, func(h *harness) {
		id, err := lockd.ParseSessionID(h.create("").ID)
		h.must(err)
		if info, _ := h.db.Snapshot().Session(id); info.Lifetime != lockd.Independent {
			t.Errorf("%+v", info)
		}
	})
}

// Ensure that the node of this process is put back when the catalog has lost it.
func TestSession_N14_NodeIsMissing(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, lose := range []func(tx *catalog.Txn) (bool, error){
			func(tx *catalog.Txn) (bool, error) { return tx.DeleteCheck("local", "serfHealth") },
			func(tx *catalog.Txn) (bool, error) { return tx.DeleteNode("local") },
		} {
			h.must(h.db.Update(func(tx *lockd.Txn) error {
				lost, err := lose(tx.Catalog())
				if !lost {
					t.Error("it was not there")
				}
				return err
			}))
			h.create(`{"Checks":[]}`) // which needs no check, but a node
			h.create("")
			list := decode[[]sessionInfo](h, h.send("GET /v1/session/list", ""))
			if len(list) != 2 { // earlier ones have ended with the check or the node
				t.Errorf("%+v", list)
			}
		}
	})
}
