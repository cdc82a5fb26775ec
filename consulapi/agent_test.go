package consulapi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

// status returns the status and output of a check of the agent.
func (h *harness) status(id string) (status, output string) {
	h.t.Helper()
	c, exists := decode[map[string]checkInfo](h, h.send("GET /v1/agent/checks", ""))[id]
	if !exists {
		h.t.Fatalf("there is no check %q", id)
	}
	return c.Status, c.Output
}

// expect fails the test unless the check has this status and output.
func (h *harness) expect(id, status, output string) {
	h.t.Helper()
	if s, o := h.status(id); s != status || o != output {
		h.t.Errorf("%s: %s %q, not %s %q", id, s, o, status, output)
	}
}

// Ensure that the agent describes itself in objects only, as clients decode it.
func TestAgent_Self(t *testing.T) {
	run(t, &consulapi.Options{Datacenter: "here", NodeID: uuidOfWeb1}, func(h *harness) {
		self := decode[map[string]map[string]any](h, h.send("GET /v1/agent/self", ""))
		config, member := self["Config"], self["Member"]
		if config["NodeName"] != "local" || config["NodeID"] != uuidOfWeb1 ||
			config["Datacenter"] != "here" || config["Server"] != true || config["Version"] == "" ||
			member["Name"] != "local" || member["Addr"] != "127.0.0.1" || member["Status"] != 1.0 {
			t.Errorf("%v", self)
		}
		for _, name := range []string{"DebugConfig", "Coord", "Stats", "Meta", "xDS"} {
			if _, has := self[name]; !has {
				t.Errorf("no %s", name)
			}
		}
		for query, want := range map[string]string{
			"": "local 8301", "?wan=": "local 8301", "?wan=1": "local.here 8302",
		} {
			members := decode[[]struct {
				Name string
				Port int
			}](h, h.send("GET /v1/agent/members"+query, ""))
			if got := fmt.Sprint(members); got != "[{"+want+"}]" {
				t.Errorf("%q: %s", query, got)
			}
		}
	})
}

// Ensure that a check of the agent is critical until a client says otherwise, with an empty answer,
// and that serfHealth is not a check of the agent.
func TestAgent_N6_RegistersChecks(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("GET /v1/agent/checks", "", 200, "{}")
		h.want("PUT /v1/agent/check/register", `{"Name":"beat","TTL":"10s","Notes":"n"}`, 200, "")
		h.want("PUT /v1/agent/check/register",
			`{"ID":"b2","Name":"other","TTL":10000000000,"Status":"passing","New":1}`, 200, "")
		h.expect("beat", "critical", "")
		h.expect("b2", "passing", "")
		checks := decode[map[string]checkInfo](h, h.send("GET /v1/agent/checks", ""))
		beat := checks["beat"]
		if len(checks) != 2 || beat.Node != "local" || beat.Type != "ttl" || beat.Notes != "n" {
			t.Errorf("%+v", checks)
		}
		h.want("PUT /v1/agent/check/register",
			`{"Name":"slow","TTL":"10s","Timeout":"3s"}`, 200, "")
		h.want("PUT /v1/agent/service/register", `{"Name":"web","Check":{"TTL":"10s"}}`, 200, "")
		for id, want := range map[string]string{
			"beat": `"0s","Timeout":"0s"`, "slow": `"0s","Timeout":"3s"`,
			"service:web": `"","Timeout":""`,
		} {
			shown := decode[map[string]json.RawMessage](h, h.send("GET /v1/agent/checks", ""))[id]
			if !strings.Contains(string(shown), `"Type":"ttl","Interval":`+want) {
				t.Errorf("%s", shown)
			}
		}
		// To register it again leaves it as it is.
		s := h.create(`{"Checks":["b2"]}`)
		h.want("PUT /v1/agent/check/register", `{"ID":"b2","Name":"other","TTL":"20s"}`, 200, "")
		h.expect("b2", "passing", "")
		h.info(s.ID)
		h.advance(19 * time.Second)
		h.expect("b2", "passing", "")
	})
}

// Ensure that a check that the agent cannot keep is refused.
func TestAgent_N6_Refuses(t *testing.T) {
	run(t, nil, func(h *harness) {
		const invalid = "Bad request: Invalid check: "
		const noProbes = invalid + "lockd keeps TTL checks only, and runs no probes"
		const noTTL = invalid + "TTL must be > 0 for TTL checks"
		for _, test := range []struct {
			body string
			code int
			text string
		}{
			{``, 400, "Bad request: Request decode failed: EOF"},
			{`{"TTL":"1s"}`, 400, "Bad request: Missing check name"},
			{`{"Name":"a","Status":"ok"}`, 400, "Bad request: Bad check status"},
			{`{"Name":"a","TTL":"1s","Interval":"1s"}`, 400,
				invalid + "Interval and TTL cannot both be specified"},
			{`{"Name":"a"}`, 400, noTTL},
			{`{"Name":"a","TTL":"-1s"}`, 400, noTTL},
			{`{"Name":"a","HTTP":"http://x","Interval":"1s"}`, 400, noProbes},
			{`{"Name":"a","Args":["true"],"Interval":"1s"}`, 400, noProbes},
			{`{"Name":"a","Args":["true"],"ScriptArgs":["true"]}`, 400, noProbes},
			{`{"Name":"a","TTL":"1s","ScriptArgs":["true"]}`, 400, noProbes},
			{`{"Name":"a","TTL":"1s","Status":"ok"}`, 400, "Bad request: Bad check status"},
			{`{"Name":"a","TTL":"1s","ServiceID":"s"}`, 404, `ServiceID "s" does not exist`},
		} {
			h.want("PUT /v1/agent/check/register", test.body, test.code, test.text)
		}
		for _, body := range []string{`{"Name":"a","TTL":"soon"}`, `{"Name":"a","TTL":true}`, `{`,
			`{"Name":"a","TTL":"1s","Timeout":"soon"}`,
			`{"Name":"a","TTL":"1s","DeregisterCriticalServiceAfter":"soon"}`,
		} {
			r := h.send("PUT /v1/agent/check/register", body)
			if r.code != 400 || !strings.HasPrefix(r.body, "Bad request: Request decode failed: ") {
				t.Errorf("%s: %d %s", body, r.code, r.body)
			}
		}
		h.want("GET /v1/agent/checks", "", 200, "{}")
	})
}

// Ensure that a check is as its client reports it, and that its sessions end before the answer.
func TestAgent_N7_SaysHowItIs(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/agent/check/register", `{"Name":"beat","TTL":"10s"}`, 200, "")
		h.want("PUT /v1/agent/check/pass/beat?note=fine", "", 200, "")
		h.expect("beat", "passing", "fine")
		s := h.create(`{"Checks":["beat"]}`)
		h.want("PUT /v1/agent/check/warn/beat?note=hm", "", 200, "")
		h.expect("beat", "warning", "hm")
		h.info(s.ID)
		h.want("PUT /v1/agent/check/update/beat", `{"Status":"passing","Output":"ok"}`, 200, "")
		h.expect("beat", "passing", "ok")
		h.want("PUT /v1/agent/check/fail/beat", "", 200, "")
		h.expect("beat", "critical", "")
		h.want("GET /v1/session/info/"+s.ID, "", 200, "[]")

		const unknown = ". Ensure that the check ID is passed, not the check name."
		h.want("PUT /v1/agent/check/pass/x", "", 404, `Unknown check ID "x"`+unknown)
		h.want("PUT /v1/agent/check/pass/serfHealth", "", 404,
			`Unknown check ID "serfHealth"`+unknown) // it has no TTL
		for _, body := range []string{``, `{}`, `{"Status":"no"}`} {
			if r := h.send("PUT /v1/agent/check/update/beat", body); r.code != 400 {
				t.Errorf("%s: %d %s", body, r.code, r.body)
			}
		}
	})
}

// Ensure that a check lapses exactly when its TTL is over, and that each report of its client
// begins the TTL anew, at no index if the report says nothing new.
func TestAgent_N8_Lapses(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/agent/check/register",
			`{"Name":"beat","TTL":"10s","Status":"passing"}`, 200, "")
		s := h.create(`{"Checks":["beat"]}`)
		h.want("PUT /v1/kv/k?acquire="+s.ID, "v", 200, "true")
		index := h.db.Snapshot().Index()
		for range 3 {
			h.advance(9 * time.Second)
			h.want("PUT /v1/agent/check/pass/beat", "", 200, "")
		}
		if got := h.db.Snapshot().Index(); got != index {
			t.Errorf("went from index %d to %d", index, got)
		}
		h.advance(10*time.Second - 1)
		h.expect("beat", "passing", "")
		h.info(s.ID)
		h.advance(1)
		h.expect("beat", "critical", "TTL expired")
		h.want("GET /v1/session/info/"+s.ID, "", 200, "[]")
		if e := h.entry("k"); e.Session != "" {
			t.Errorf("%+v", e)
		}
		h.want("PUT /v1/agent/check/pass/beat", "", 200, "")
		h.advance(10 * time.Second)
		h.expect("beat", "critical", "TTL expired")
	})
}

// Ensure that a second handler on the database, such as a Transport beside a Handler, keeps the
// same checks: a report to one counts for both.
func TestAgent_N8_TwoHandlers(t *testing.T) {
	run(t, nil, func(h *harness) {
		first := h.Handler
		h.want("PUT /v1/agent/check/register",
			`{"Name":"beat","TTL":"10s","Status":"passing"}`, 200, "")
		var err error
		h.Handler, err = consulapi.Handler(h.db, nil)
		h.must(err)
		h.advance(9 * time.Second)
		h.want("PUT /v1/agent/check/pass/beat", "", 200, "")
		h.Handler = first
		h.advance(9 * time.Second)
		h.expect("beat", "passing", "")
		h.advance(time.Second)
		h.expect("beat", "critical", "TTL expired")
	})
}

// Ensure that the removal of something from the agent ends its sessions before the answer.
func TestAgent_N9_Deregisters(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/agent/service/register", `{"Name":"web",
			"Check":{"TTL":"10s","Status":"passing"}}`, 200, "")
		h.want("PUT /v1/agent/check/register",
			`{"Name":"beat","TTL":"10s","Status":"passing"}`, 200, "")
		one, two := h.create(`{"Checks":["beat"]}`), h.create(`{"Checks":["service:web"]}`)
		h.want("PUT /v1/agent/check/deregister/beat", "", 200, "")
		h.want("GET /v1/session/info/"+one.ID, "", 200, "[]")
		h.want("PUT /v1/agent/service/deregister/web", "", 200, "")
		h.want("GET /v1/session/info/"+two.ID, "", 200, "[]")
		h.want("GET /v1/agent/services", "", 200, "{}")
		h.want("GET /v1/agent/checks", "", 200, "{}")
		for _, path := range []string{"check/deregister/beat", "service/deregister/web"} {
			if r := h.send("PUT /v1/agent/"+path, ""); r.code != 404 {
				t.Errorf("%s again: %d %s", path, r.code, r.body)
			}
		}
	})
}

// Ensure that the agent cannot replace or remove the check of the node itself, so that the sessions
// that are bound to it live on.
func TestAgent_N16_LeavesSerfHealth(t *testing.T) {
	run(t, nil, func(h *harness) {
		s := h.create("")
		for _, id := range []string{"serfHealth", "serfhealth"} {
			h.want("PUT /v1/agent/check/deregister/"+id, "", 404, `Unknown check ID "`+id+
				`". Ensure that the check ID is passed, not the check name.`)
		}
		const own = "Bad request: Invalid check: serfHealth is the node's own"
		for target, bodies := range map[string][]string{
			"PUT /v1/agent/check/register": {
				`{"Name":"serfHealth","TTL":"1s"}`, `{"ID":"serfHealth","Name":"a","TTL":"1s"}`,
				`{"CheckID":"serfHealth","Name":"a","TTL":"1s"}`,
				`{"ID":"SERFHEALTH","Name":"a","TTL":"1s"}`, // an ID is found in any case (N7)
			},
			"PUT /v1/agent/service/register": {
				`{"Name":"a","Check":{"CheckID":"serfHealth","TTL":"1s"}}`,
				`{"Name":"a","Checks":[{"TTL":"1s"},{"ID":"serfHealth","TTL":"1s"}]}`,
				`{"Name":"a","Check":{"CheckID":"SerfHealth","TTL":"1s"}}`,
			},
		} {
			for _, body := range bodies {
				h.want(target, body, 400, own)
			}
		}
		h.want("PUT /v1/agent/check/register", `{"ID":"a","Name":"serfHealth","TTL":"1s"}`, 200, "")
		h.advance(time.Minute)
		h.info(s.ID)
		h.want("GET /v1/agent/services", "", 200, "{}")
	})
}

// Ensure that an agent whose node was removed from the catalog puts the node back when it has
// something to keep there.
func TestAgent_N16_PutsItsNodeBack(t *testing.T) {
	for target, body := range map[string]string{
		"PUT /v1/agent/check/register":          `{"Name":"beat","TTL":"10s"}`,
		"PUT /v1/agent/service/register":        `{"Name":"web","Check":{"TTL":"10s"}}`,
		"PUT /v1/agent/maintenance?enable=true": ``,
	} {
		run(t, nil, func(h *harness) {
			h.want("PUT /v1/catalog/deregister", `{"Node":"local"}`, 200, "true")
			member := decode[struct{ Member struct{ Name, Addr string } }](h,
				h.send("GET /v1/agent/self", "")).Member
			if member.Name != "local" || member.Addr != "127.0.0.1" {
				t.Errorf("without its node it is %+v", member)
			}
			h.want(target, body, 200, "")
			checks := decode[[]checkInfo](h, h.send("GET /v1/health/node/local", ""))
			if len(checks) != 2 || !slices.ContainsFunc(checks, func(c checkInfo) bool {
				return c.CheckID == "serfHealth" && c.Status == "passing"
			}) {
				t.Errorf("%s: %+v", target, checks)
			}
		})
	}
}

// Ensure that maintenance shows as a critical check of the node or the service, and ends nothing.
func TestAgent_N10N11_Maintenance(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/agent/service/register", `{"ID":"w1","Name":"web",
			"Check":{"TTL":"10s","Status":"passing"}}`, 200, "")
		s := h.create(`{"Checks":["service:w1"]}`)
		h.want("PUT /v1/agent/maintenance?enable=true&reason=why", "", 200, "")
		h.want("PUT /v1/agent/service/maintenance/w1?enable=true", "", 200, "")
		h.expect("_node_maintenance", "critical", "")
		h.expect("_service_maintenance:w1", "critical", "")
		h.info(s.ID)
		h.create("")
		checks := decode[map[string]checkInfo](h, h.send("GET /v1/agent/checks", ""))
		for id, notes := range map[string]string{
			"_node_maintenance": "why",
			"_service_maintenance:w1": "Maintenance mode is enabled for this service, " +
				"but no reason was provided. This is a default message.",
		} {
			if c := checks[id]; c.Type != "maintenance" || c.Notes != notes {
				t.Errorf("%+v", c)
			}
		}
		h.want("PUT /v1/agent/maintenance?enable=true&reason=other", "", 200, "")
		if c, _ := h.db.Snapshot().Catalog().Check("local", "_node_maintenance"); c.Notes != "why" {
			t.Errorf("the first reason has become %q", c.Notes)
		}
		h.want("PUT /v1/agent/maintenance?enable=false", "", 200, "")
		h.want("PUT /v1/agent/maintenance?enable=true", "", 200, "")
		if c, _ := h.db.Snapshot().Catalog().Check("local", "_node_maintenance"); c.Notes !=
			"Maintenance mode is enabled for this node, "+
				"but no reason was provided. This is a default message." {
			t.Errorf("the reason of a node without one is %q", c.Notes)
		}
		h.want("PUT /v1/agent/maintenance?enable=false", "", 200, "")
		h.want("PUT /v1/agent/service/maintenance/w1?enable=false", "", 200, "")
		if got := h.checkIDs("/v1/health/state/critical"); got != "" {
			t.Error(got)
		}
		h.want("PUT /v1/agent/maintenance", "", 400, "Bad request: Missing value for enable")
		h.want("PUT /v1/agent/service/maintenance/w1", "", 400,
			"Bad request: Missing value for enable")
		h.want("PUT /v1/agent/maintenance?enable=", "", 400,
			`Bad request: Invalid value for enable: ""`)
		h.want("PUT /v1/agent/maintenance?enable=x", "", 400,
			`Bad request: Invalid value for enable: "x"`)
		for _, path := range []string{"maintenance/", "maintenance"} { // H4
			h.want("PUT /v1/agent/service/"+path+"?enable=true", "", 400,
				"Bad request: Missing service ID")
		}
		if r := h.send("PUT /v1/agent/service/maintenance/no?enable=true", ""); r.code != 404 {
			t.Errorf("%d %s", r.code, r.body)
		}
	})
}

// Ensure that a service of the agent is put into the catalog with its checks, in one step.
func TestAgent_N12_RegistersServices(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/agent/service/register", `{"ID":"w1","Name":"web","Port":80,
			"Tags":["a"],"Address":"10.0.0.1","Meta":{"v":"1"},"Weights":{"Passing":1},
			"Checks":[{"TTL":"10s","Status":"passing"},
				{"CheckID":"mine","Name":"Mine","TTL":"9s"}]}`, 200, "")
		type agentService struct {
			ID, Service, Address string
			Port                 int
			Tags                 []string
			Meta                 map[string]string
		}
		want := `{"ID":"w1","Service":"web","Address":"10.0.0.1","Port":80,"Tags":["a"],` +
			`"Meta":{"v":"1"}}`
		for _, got := range []agentService{
			decode[agentService](h, h.send("GET /v1/agent/service/w1", "")),
			decode[map[string]agentService](h, h.send("GET /v1/agent/services", ""))["w1"],
		} {
			if text, _ := json.Marshal(got); string(text) != want {
				t.Errorf("%s", text)
			}
		}
		if got := h.checkIDs("/v1/health/checks/web"); got != "local/mine local/service:w1:1" {
			t.Error(got)
		}
		c, _ := h.db.Snapshot().Catalog().Check("local", "service:w1:1")
		if c.Name != "Service 'web' check" || c.TTL != 10*time.Second {
			t.Errorf("%+v", c)
		}
		h.want("GET /v1/agent/service/no", "", 404, "unknown service ID: no")
		h.want("PUT /v1/agent/service/register", `{"ID":"x"}`, 400,
			"Bad request: Missing service name")
		for _, check := range []string{
			`{"HTTP":"http://x"}`, // a probe
			`{"TTL":"1s","CheckID":"` + strings.Repeat("c", lockd.MaxKeySize+1) + `"}`,
		} {
			r := h.send("PUT /v1/agent/service/register", `{"Name":"x","Check":`+check+`}`)
			services := decode[map[string]any](h, h.send("GET /v1/agent/services", ""))
			if r.code != 400 || services["x"] != nil {
				t.Errorf("%.100s: %d %.200s: %v", check, r.code, r.body, services)
			}
		}
		for _, path := range []string{"service/register", "check/update/mine"} {
			h.want("PUT /v1/agent/"+path, `{"Name":"x"`, 400,
				"Bad request: Request decode failed: unexpected EOF")
		}
	})
}

// Ensure that the agent shows a service in Consul's members, which are fewer than the catalog's.
func TestAgent_N12_ShowsServices(t *testing.T) {
	run(t, &consulapi.Options{Datacenter: "here"}, func(h *harness) {
		h.want("PUT /v1/agent/service/register", `{"Name":"web","Port":80}`, 200, "")
		const (
			shown = `{"ID":"web","Service":"web","Tags":[],"Meta":{},"Port":80,"Address":"",` +
				`"Weights":{"Passing":1,"Warning":1},"EnableTagOverride":false,`
			datacenter = `"Datacenter":"here"}`
		)
		h.want("GET /v1/agent/services", "", 200, `{"web":`+shown+datacenter+`}`)
		r := h.send("GET /v1/agent/service/web", "")
		h.want("GET /v1/agent/service/web", "", 200,
			shown+`"ContentHash":"`+r.header.Get("X-Consul-ContentHash")+`",`+datacenter)
		h.want("GET /v1/agent/health/service/id/web", "", 200,
			`{"AggregatedStatus":"passing","Service":`+shown+datacenter+`,"Checks":[]}`)
	})
}

// Ensure that a read of one service of the agent blocks by the hash of its content.
func TestAgent_B4_ServiceBlocksByHash(t *testing.T) {
	run(t, nil, func(h *harness) {
		const register = "PUT /v1/agent/service/register"
		read := func() (port int, hash string) {
			r := h.send("GET /v1/agent/service/web", "")
			s := decode[struct {
				Port        int
				ContentHash string
			}](h, r)
			if got := r.header.Get("X-Consul-ContentHash"); got == "" || got != s.ContentHash {
				t.Errorf("the header has %q, the body %q", got, s.ContentHash)
			}
			return s.Port, s.ContentHash
		}
		h.want(register, `{"Name":"web","Port":1}`, 200, "")
		_, hash := read()
		if _, again := read(); again != hash {
			t.Errorf("hash %q, and then %q", hash, again)
		}
		const target = "GET /v1/agent/service/web?wait=1m&hash="
		if r := h.answered(h.blocked(target + "another")); r.code != 200 {
			t.Errorf("another hash: %d %s", r.code, r.body)
		}
		waiting := h.blocked(target + hash)
		h.put("a", "1")
		h.waits(waiting)
		h.want(register, `{"Name":"web","Port":2}`, 200, "")
		r := h.answered(waiting)
		port, changed := read()
		if port != 2 || changed == hash || !strings.Contains(r.body, changed) {
			t.Errorf("port %d, hash %q after %q: %s", port, changed, hash, r.body)
		}
		_, hash = read()
		waiting = h.blocked(target + hash)
		h.want("PUT /v1/agent/service/deregister/web", "", 200, "")
		if r := h.answered(waiting); r.code != 404 {
			t.Errorf("of a service that is gone: %d %s", r.code, r.body)
		}
		h.want(register, `{"Name":"web"}`, 200, "")
		_, hash = read()
		waiting = h.blocked(target + hash)
		h.must(h.db.Close())
		r = h.answered(waiting)
		if r.code != 500 || r.body != "lockd: database closed by its owner" {
			t.Errorf("of a closed database: %d %s", r.code, r.body)
		}
	})
}

// A program that computes a duration may send the number with a fraction or an exponent.
func TestAgent_N6_DurationsAreAnyNumbers(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, ttl := range []string{`10000000000`, `10000000000.0`, `1e10`, `"10s"`} {
			h.want("PUT /v1/agent/check/register", `{"Name":"c","TTL":`+ttl+`}`, 200, "")
			c, _ := h.db.Snapshot().Catalog().Check("local", "c")
			if c.TTL != 10*time.Second {
				t.Errorf("%s is %v", ttl, c.TTL)
			}
			h.want("PUT /v1/catalog/register", `{"Node":"n","Address":"1.1.1.1",
				"Check":{"Name":"c","Definition":{"Interval":`+ttl+`}}}`, 200, "true")
		}
		h.want("PUT /v1/agent/check/register",
			`{"Name":"c","TTL":"10s","Interval":"","Timeout":null}`, 200, "")
		for _, ttl := range []string{`1e30`, `-1e30`, `true`, `"10"`, `9223372036854775808`} {
			r := h.send("PUT /v1/agent/check/register", `{"Name":"d","TTL":`+ttl+`}`)
			if r.code != 400 || !strings.HasPrefix(r.body, "Bad request: Request decode failed: ") {
				t.Errorf("%s: %d %s", ttl, r.code, r.body)
			}
		}
	})
}

// Ensure that a TTL that lacks its unit, and so counts nanoseconds, is refused in words for any
// client, before anything is registered.
func TestAgent_N6_TooShortTTL(t *testing.T) {
	run(t, nil, func(h *harness) {
		const text = "Bad request: Invalid check: TTL 10ns is below 1ms: was a unit forgotten?"
		h.want("PUT /v1/agent/check/register", `{"Name":"c","TTL":10}`, 400, text)
		h.want("PUT /v1/agent/check/register", `{"Name":"c","TTL":"10ns"}`, 400, text)
		h.want("PUT /v1/agent/service/register", `{"Name":"web","Check":{"TTL":10}}`, 400, text)
		h.want("GET /v1/agent/services", "", 200, "{}")
		h.want("PUT /v1/agent/check/register", `{"Name":"c","TTL":"1ms"}`, 200, "")
	})
}

// The IDs that clients send statuses to go by the order: Check comes first, as in Consul.
func TestAgent_N12_NumbersChecks(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/agent/service/register", `{"Name":"web",
			"Checks":[{"Name":"second","TTL":"10s"},{"Name":"third","TTL":"10s"}],
			"Check":{"Name":"first","TTL":"10s"}}`, 200, "")
		checks := decode[map[string]struct{ Name string }](h, h.send("GET /v1/agent/checks", ""))
		for i, name := range []string{"first", "second", "third"} {
			id := fmt.Sprintf("service:web:%d", i+1)
			if got := checks[id].Name; got != name {
				t.Errorf("%s is %q, not %q", id, got, name)
			}
		}
	})
}

// Ensure that a service that is registered again keeps the checks that are not named, unless its
// client replaces them. Then their sessions end with them, before the answer.
func TestAgent_N12_ReplacesChecks(t *testing.T) {
	run(t, nil, func(h *harness) {
		register := func(query, checks, want string) {
			t.Helper()
			h.want("PUT /v1/agent/service/register"+query,
				`{"ID":"w1","Name":"web","Checks":[`+checks+`]}`, 200, "")
			if got := h.checkIDs("/v1/health/checks/web"); got != want {
				t.Errorf("%s has %s", query, got)
			}
		}
		const (
			one = `{"CheckID":"one","TTL":"10s","Status":"passing"}`
			two = `{"CheckID":"two","TTL":"10s","Status":"passing"}`
		)
		h.want("PUT /v1/agent/check/register", `{"Name":"beat","TTL":"10s"}`, 200, "")
		register("", one+","+two, "local/one local/two")
		register("", one, "local/one local/two")
		register("?replace-existing-checks=false", one, "local/one local/two")
		s, lost := h.create(`{"Checks":["one"]}`), h.create(`{"Checks":["two"]}`)
		register("?replace-existing-checks", one, "local/one")
		h.info(s.ID)
		h.want("GET /v1/session/info/"+lost.ID, "", 200, "[]")
		register("?replace-existing-checks", strings.Replace(one, "one", "ONE", 1), "local/ONE")
		h.info(s.ID)
		register("?replace-existing-checks=true", "", "")
		h.want("GET /v1/session/info/"+s.ID, "", 200, "[]")
		register("", one+","+two, "local/one local/two")
		register("?replace-existing-checks=true", "", "")
		h.expect("beat", "critical", "")
	})
}

// Ensure that an empty check is ignored, and that an address that stands for all addresses is
// refused.
func TestAgent_N12_EmptyChecksAndAddresses(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, check := range []string{`{}`, `{"TTL":"0s"}`, `null`} {
			h.want("PUT /v1/agent/service/register", `{"Name":"web","Check":`+check+
				`,"Checks":[{},{"TTL":"1s"}]}`, 200, "")
			if got := h.checkIDs("/v1/health/checks/web"); got != "local/service:web" {
				t.Errorf("%s: %s", check, got)
			}
		}
		const badStatus = "Bad request: Status for checks must 'passing', 'warning', 'critical'"
		const noTTL = "Bad request: Invalid check: TTL must be > 0 for TTL checks"
		h.want("PUT /v1/agent/service/register",
			`{"Name":"bad","Check":{"TTL":"1s","Status":"ok"}}`, 400, badStatus)
		h.want("PUT /v1/agent/service/register", `{"Name":"bad","Check":{"Status":"ok"}}`,
			400, noTTL)
		for _, address := range []string{"0.0.0.0", "::", "[::]"} {
			h.want("PUT /v1/agent/service/register", `{"Name":"any","Address":"`+address+`"}`,
				400, "Bad request: Invalid service address")
			h.want("PUT /v1/catalog/register", `{"Node":"n","Address":"10.0.0.1","Service":{`+
				`"Service":"any","Address":"`+address+`"}}`, 500, "Invalid service address")
		}
	})
}

// Ensure that a check names its service in either spelling.
func TestAgent_N6_ServiceOfACheck(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/agent/service/register", `{"Name":"web"}`, 200, "")
		for _, member := range []string{"ServiceID", "service_id"} {
			h.want("PUT /v1/agent/check/register",
				`{"Name":"`+member+`","TTL":"1s","`+member+`":"web"}`, 200, "")
		}
		want := "local/service_id local/ServiceID"
		if got := h.checkIDs("/v1/health/checks/web"); got != want {
			t.Error(got)
		}
	})
}

// Ensure that the methods of the agent's paths are told apart by their longest part.
func TestAgent_H1_Methods(t *testing.T) {
	run(t, nil, func(h *harness) {
		for target, allow := range map[string]string{
			"PUT /v1/agent/service/w1":              "OPTIONS,GET",
			"GET /v1/agent/service/deregister/w1":   "OPTIONS,PUT",
			"GET /v1/agent/service/register":        "OPTIONS,PUT",
			"POST /v1/agent/check/pass/c":           "OPTIONS,PUT",
			"DELETE /v1/catalog/nodes":              "OPTIONS,GET",
			"DELETE /v1/query":                      "OPTIONS,GET,POST",
			"POST /v1/query/x":                      "OPTIONS,GET,PUT,DELETE",
			"POST /v1/agent/service/maintenance/w1": "OPTIONS,PUT",
		} {
			r := h.send(target, "")
			if r.code != 405 || !slices.Equal(r.header["Allow"], []string{allow}) {
				t.Errorf("%s: %d %v", target, r.code, r.header["Allow"])
			}
		}
	})
}
