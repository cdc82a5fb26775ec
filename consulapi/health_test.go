package consulapi_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// Ensure that each read of checks answers with the checks that it names, and with an empty list for
// an unknown name.
func TestHealth_N18_Checks(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.registerWeb()
		for path, want := range map[string]string{
			"node/web1":                     "web1/disk web1/up",
			"node/LOCAL":                    "local/serfHealth",
			"node/nobody":                   "",
			"node/web2?node-meta=rack:7":    "web2/up", // the node has only this check
			"state/any":                     "local/serfHealth web1/disk web1/up web2/up",
			"state/passing":                 "local/serfHealth web1/up",
			"state/PASSING":                 "local/serfHealth web1/up",
			"state/warning":                 "web1/disk",
			"state/critical":                "web2/up",
			"state/unheard":                 "",
			"state/any?node-meta=rack:7":    "web1/disk web1/up",
			"checks/Web":                    "web1/up web2/up",
			"checks/nothing":                "",
			"checks/web?node-meta=rack:100": "",
		} {
			if got := h.checkIDs("/v1/health/" + path); got != want {
				t.Errorf("%s: %s", path, got)
			}
		}
		h.want("GET /v1/health/node/nobody", "", 200, "[]")
		h.want("GET /v1/health/node/", "", 400, "Bad request: Missing node name")
		h.want("GET /v1/health/checks/", "", 400, "Bad request: Missing service name")
		h.want("GET /v1/health/service/", "", 400, "Bad request: Missing service name")
		h.want("GET /v1/health/state/", "", 400, "Bad request: Missing check state")

		c, _ := h.db.Snapshot().Catalog().Check("web1", "up")
		h.want("GET /v1/health/state/passing?node-meta=rack:7", "", 200, fmt.Sprintf(
			`[{"Node":"web1","CheckID":"up","Name":"Up","Status":"passing","Notes":"",`+
				`"Output":"","ServiceID":"w1","ServiceName":"web","ServiceTags":["a","b"],`+
				`"Type":"","Interval":"","Timeout":"","ExposedPort":0,"Definition":{},`+
				`"CreateIndex":%d,"ModifyIndex":%d}]`, c.CreateIndex, c.ModifyIndex))
		if r := h.send("GET /v1/health/node/local", ""); !strings.Contains(r.body,
			`"ServiceTags":[]`) {
			t.Error(r.body)
		}
	})
}

// Ensure that each of many services of one node, more than are looked at together, comes with its
// own checks and the node's, and is chosen by them.
func TestHealth_N18_ManyServicesOfANode(t *testing.T) {
	const n = 300
	run(t, nil, func(h *harness) {
		h.must(h.db.Update(func(tx *lockd.Txn) error {
			for i := range n {
				id := fmt.Sprintf("S%d", i)
				service := catalog.Service{Node: "local", ID: id, Name: "web"}
				own := catalog.Check{
					Node: "local", ID: "of-" + id, ServiceID: id,
					Status: catalog.Status(i % 3),
				}
				if err := errors.Join(tx.Catalog().PutService(service),
					tx.Catalog().PutCheck(own)); err != nil {
					return err
				}
			}
			return nil
		}))
		h.prepare(`{"Name":"q","Service":{"Service":"web","IgnoreCheckIDs":["serfHealth"]}}`)
		type found struct {
			Service struct{ ID string }
			Checks  []checkInfo
		}
		wants := func(all []found, want int, checks string) {
			t.Helper()
			seen := make(map[string]bool)
			for _, one := range all {
				var ids []string
				for _, c := range one.Checks {
					ids = append(ids, c.CheckID)
				}
				seen[one.Service.ID] = true
				if got := strings.Join(ids, " "); got != checks+"of-"+one.Service.ID {
					t.Fatalf("%s has the checks %q", one.Service.ID, got)
				}
			}
			if len(all) != want || len(seen) != want {
				t.Errorf("%d services, %d different, not %d", len(all), len(seen), want)
			}
		}
		list := func(target string) []found { return decode[[]found](h, h.send(target, "")) }
		wants(list("GET /v1/health/service/web"), n, "serfHealth ")
		wants(list("GET /v1/health/service/web?passing"), n/3, "serfHealth ")
		r := h.send("GET /v1/agent/health/service/name/web", "")
		if r.code != 503 {
			t.Errorf("the health of all is told by %d", r.code)
		}
		r.code = 200
		wants(decode[[]found](h, r), n, "")
		// A check that the query ignores is shown.
		wants(decode[struct{ Nodes []found }](h, h.send("GET /v1/query/q/execute", "")).Nodes,
			n*2/3, "serfHealth ")
	})
}

// Ensure that the checks of the node come before the checks of the service, and name no service.
func TestHealth_N18_NodesChecksFirst(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/catalog/register", `{"Node":"n","Address":"10.0.0.1",
			"Service":{"Service":"web"},"Checks":[{"CheckID":"a","ServiceID":"web"},
				{"CheckID":"b"},{"CheckID":"c","ServiceID":"web"},{"CheckID":"d"}]}`, 200, "true")
		found := decode[[]struct{ Checks []checkInfo }](h,
			h.send("GET /v1/health/service/web", ""))
		var ids string
		for _, c := range found[0].Checks {
			ids += c.CheckID + c.ServiceName
		}
		if ids != "bdawebcweb" {
			t.Error(ids)
		}
	})
}

// Ensure that the type of a check is the one that was sent, and is told from its definition if none
// was.
func TestHealth_N2_TypeOfACheck(t *testing.T) {
	run(t, nil, func(h *harness) {
		for i, test := range []struct{ sent, kind string }{
			{`"Definition":{"HTTP":"x","Interval":"5s"}`, "http"},
			{`"Definition":{"TCP":"x","Interval":5}`, "tcp"},
			{`"Definition":{"UDP":"x","Interval":"5s"}`, "udp"},
			{`"Definition":{"GRPC":"x","HTTP":"x","Interval":"5s"}`, "grpc"},
			{`"Definition":{"H2PING":"x","Interval":"5s"}`, "h2ping"},
			{`"Definition":{"HTTP":"x"}`, ""},
			{`"Definition":{"TCP":"x"}`, ""},
			{`"Definition":{"UDP":"x"}`, ""},
			{`"Definition":{"GRPC":"x"}`, ""},
			{`"Definition":{"H2PING":"x"}`, ""},
			{`"Definition":{"TTL":"5s"}`, "ttl"},
			{`"Definition":{"AliasNode":"x"}`, "alias"},
			{`"Definition":{"AliasService":"x"}`, "alias"},
			{`"Definition":{"ScriptArgs":["x"]}`, "script"},
			{`"Definition":{"ScriptArgs":["x"],"DockerContainerID":"x","Interval":"5s"}`, "docker"},
			{`"Definition":{"ScriptArgs":["x"],"DockerContainerID":"x"}`, "script"},
			{`"Definition":{"ScriptArgs":["x"],"Interval":"5s"}`, "script"},
			{`"Definition":{"DockerContainerID":"x","Interval":"5s"}`, ""},
			{`"Definition":{"Shell":"x","Interval":"5s"}`, ""},
			{`"Type":"mine","Definition":{"HTTP":"x","Interval":"5s"}`, "mine"},
			{`"Type":"mine"`, "mine"},
			{`"Type":""`, ""},
		} {
			body := fmt.Sprintf(`{"Node":"n","Address":"a","Check":{"CheckID":"c%d",%s}}`, i,
				test.sent)
			h.want("PUT /v1/catalog/register", body, 200, "true")
			r := h.send("GET /v1/health/node/n", "")
			if c := decode[[]checkInfo](h, r)[0]; c.Type != test.kind {
				t.Errorf("%s has the type %q", test.sent, c.Type)
			}
			h.want("PUT /v1/catalog/deregister", `{"Node":"n"}`, 200, "true")
		}
	})
}

// Ensure that a check shows the Type, Interval and Timeout that were sent for it, until it is
// registered without.
func TestCatalog_N2_ShowsWhatWasSent(t *testing.T) {
	run(t, nil, func(h *harness) {
		const sent = `"Type":"http","Interval":"5s","Timeout":"1s"`
		register := func(members string) string {
			h.want("PUT /v1/catalog/register", `{"Node":"n","Address":"a","Check":{"CheckID":"c"`+
				members+`}}`, 200, "true")
			return h.send("GET /v1/health/node/n", "").body
		}
		if shown := register("," + sent); !strings.Contains(shown, sent) {
			t.Error(shown)
		}
		if r := h.send("PUT /v1/txn", `[{"Check":{"Verb":"set","Check":{"Node":"n","CheckID":"d",`+
			sent+`}}}]`); !strings.Contains(r.body, sent) {
			t.Error(r.body)
		}
		if shown := register(""); !strings.Contains(shown, `"Type":"","Interval":"","Timeout":""`) {
			t.Error(shown)
		}
	})
}

// Ensure that the instances of a service come with their checks and those of their nodes: all
// instances, or only those whose checks all pass.
func TestHealth_N18_Service(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.registerWeb()
		type found struct {
			Node    struct{ Node string }
			Service struct{ ID string }
			Checks  []checkInfo
		}
		list := func(query string) string {
			var all []string
			for _, i := range decode[[]found](h, h.send("GET /v1/health/service/web"+query, "")) {
				all = append(all, fmt.Sprintf("%s/%s:%d", i.Node.Node, i.Service.ID, len(i.Checks)))
			}
			return strings.Join(all, " ")
		}
		expect := func(query, want string) {
			t.Helper()
			if got := list(query); got != want {
				t.Errorf("%q: %s", query, got)
			}
		}
		expect("", "web1/w1:2 web2/web:1")
		expect("?passing=false", "web1/w1:2 web2/web:1")
		expect("?passing", "") // the disk of web1 warns
		expect("?tag=a", "web1/w1:2")
		expect("?node-meta=rack:7", "web1/w1:2")
		h.want("PUT /v1/catalog/deregister", `{"Node":"web1","CheckID":"disk"}`, 200, "true")
		expect("?passing", "web1/w1:1")
		expect("?passing=1", "web1/w1:1")
		h.want("GET /v1/health/service/web?passing=x", "", 400,
			"Bad request: Invalid value for ?passing")
		h.want("GET /v1/health/service/nothing", "", 200, "[]")
	})
}
