package consulapi_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/consulapi"
)

// checkInfo is a check as a client sees it.
type checkInfo struct {
	Node, CheckID, Name, Status, Notes, Output, ServiceID, ServiceName, Type string

	ServiceTags              []string
	CreateIndex, ModifyIndex uint64
}

const uuidOfWeb1 = "40e4a748-2192-161a-0510-9bf59fe950b5"

// registerWeb registers the nodes web1 and web2, each with an instance of the service web.
func (h *harness) registerWeb() {
	h.t.Helper()
	h.want("PUT /v1/catalog/register", `{"ID":"`+uuidOfWeb1+`","Node":"web1","Address":"10.0.0.1",
		"NodeMeta":{"rack":"7"},
		"Service":{"ID":"w1","Service":"web","Tags":["a","b"],"Port":80,"Meta":{"v":"1"}},
		"Check":{"CheckID":"up","Name":"Up","Status":"passing","ServiceID":"w1"},
		"Checks":[{"Name":"disk","Status":"warning","Output":"90 %"}]}`, 200, "true")
	h.want("PUT /v1/catalog/register", `{"Node":"web2","Address":"10.0.0.2",
		"Service":{"Service":"web","Tags":["b","c"],"Address":"10.0.1.2"},
		"Check":{"Name":"up","ServiceID":"web"}}`, 200, "true")
}

// checkIDs returns the IDs of the checks that a read answers with.
func (h *harness) checkIDs(path string) string {
	h.t.Helper()
	var ids []string
	for _, c := range decode[[]checkInfo](h, h.send("GET "+path, "")) {
		ids = append(ids, c.Node+"/"+c.CheckID)
	}
	return strings.Join(ids, " ")
}

// Ensure that a registration puts node, service and checks in one step, and that a check is
// critical unless the registration says otherwise.
func TestCatalog_N1N2_Registers(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.registerWeb()
		state := h.db.Snapshot()
		node, _ := state.Catalog().Node("web1")
		service, _ := state.Catalog().Service("web1", "w1")
		up, _ := state.Catalog().Check("web1", "up")
		disk, _ := state.Catalog().Check("web1", "disk")
		other, _ := state.Catalog().Check("web2", "up")
		if node.ID != uuidOfWeb1 || node.Address != "10.0.0.1" || node.Meta["rack"] != "7" ||
			service.Port != 80 || service.Name != "web" || service.Meta["v"] != "1" ||
			up.Status != catalog.Passing || up.ServiceID != "w1" || up.Name != "Up" ||
			disk.Status != catalog.Warning || disk.Output != "90 %" ||
			other.Status != catalog.Critical {
			t.Errorf("%+v %+v %+v %+v %+v", node, service, up, disk, other)
		}
		if service.CreateIndex != node.CreateIndex || up.CreateIndex != node.CreateIndex {
			t.Error("not in one step")
		}
		// The request may leave the node as it is, which needs no address.
		h.want("PUT /v1/catalog/register", `{"Node":"WEB1","SkipNodeUpdate":true,
			"Service":{"Service":"more"},"CreateIndex":1,"ModifyIndex":2}`, 200, "true")
		if now, _ := h.db.Snapshot().Catalog().Node("web1"); now.ModifyIndex != node.ModifyIndex {
			t.Errorf("%+v", now)
		}
		// There is none that it could leave as it is.
		h.want("PUT /v1/catalog/register", `{"Node":"new","Address":"10.0.0.9",
			"SkipNodeUpdate":true,"Service":{"Service":"more"}}`, 200, "true")
		if n, _ := h.db.Snapshot().Catalog().Node("new"); n.Address != "10.0.0.9" {
			t.Errorf("%+v", n)
		}
	})
}

// definition is a registration of a check with a Definition of these members.
func definition(members string) string {
	return `{"Node":"n","Address":"x","Check":{"Name":"c","Definition":{` + members + `}}}`
}

// Ensure that an invalid registration is refused as Consul does, and changes nothing.
func TestCatalog_N1_Refuses(t *testing.T) {
	run(t, nil, func(h *harness) {
		before := h.db.Snapshot().Index()
		for _, test := range []struct {
			body string
			code int
			text string
		}{
			{`{"Address":"x"}`, 500, "Must provide node"},
			{`{"Node":"n"}`, 500, "Must provide address if SkipNodeUpdate is not set"},
			{`{"Node":"n","Address":"x","ID":"no"}`, 500, "Bad node ID: "},
			{`{"Datacenter":"far"}`, 500, "No path to datacenter"},
			{`{"Node":"n","Address":"x","Service":{"ID":"a"}}`, 500,
				"Must provide service name with ID"},
			{`{"Node":"n","Address":"x","Service":{}}`, 500, "Must provide service name"},
			{`{"Node":"n","Address":"x","Service":{"Service":"s"},"Datacenter":"far"}`, 500,
				"No path to datacenter"},
			{`{"Node":"` + strings.Repeat("n", lockd.MaxKeySize+1) + `","Address":"x"}`, 400,
				"Bad request: "},
			{`{"Node":"n","Address":"x","Service":{"Service":"` +
				strings.Repeat("s", lockd.MaxKeySize+1) + `"}}`, 400, "Bad request: "},
			{`{"Node":"n","Address":"x","Check":{"Name":"` +
				strings.Repeat("c", lockd.MaxKeySize+1) + `"}}`, 400, "Bad request: "},
			{`{"Node":"n","Address":"x","Check":{"Name":"c","ServiceID":"s"}}`, 500,
				"Unknown service ID 's' for check ID 'c'"},
			{`{"Node":"n","Address":"x","Check":{"Node":"m","Name":"c"}}`, 500,
				"Node 'm' for check 'c' doesn't match register request node 'n'"},
			{`{"Node":"n","Address":"x","Check":{}}`, 500, "Must provide check ID or name"},
			{`{"Node":"n","Address":"x","Check":{"Name":"c","Status":"ok"}}`, 400,
				"Bad request: Invalid check status"},
			{`{"Node":"n","Address":"x","Bogus":1}`, 400,
				`Bad request: Request decode failed: json: unknown field "Bogus"`},
			{``, 400, "Bad request: Request decode failed: EOF"},
			{definition(`"HTTP":5`), 400, "Bad request: Request decode failed: "},
			{definition(`"Interval":"nonsense"`), 400, "Bad request: Request decode failed: "},
			{definition(`"Header":"x"`), 400, "Bad request: Request decode failed: "},
			{definition(`"TLSSkipVerify":"yes"`), 400, "Bad request: Request decode failed: "},
			{definition(`"IntervalDuration":"x"`), 400, "Bad request: Request decode failed: "},
			{definition(`"TimeoutDuration":"x"`), 400, "Bad request: Request decode failed: "},
			{definition(`"DeregisterCriticalServiceAfterDuration":"x"`), 400,
				"Bad request: Request decode failed: "},
			{definition(`"SessionName":5`), 400, "Bad request: Request decode failed: "},
		} {
			r := h.send("PUT /v1/catalog/register", test.body)
			if r.code != test.code || !strings.HasPrefix(r.body, test.text) {
				t.Errorf("%.100s: %d %s", test.body, r.code, r.body)
			}
		}
		h.want("PUT /v1/catalog/deregister", `{}`, 500, "Must provide node")
		h.want("PUT /v1/catalog/deregister", `{"Node":"local","Bogus":1}`, 400,
			`Bad request: Request decode failed: json: unknown field "Bogus"`)
		h.want("PUT /v1/catalog/deregister", `{"Datacenter":"far"}`, 500, "No path to datacenter")
		if after := h.db.Snapshot().Index(); after != before {
			t.Errorf("went from index %d to %d", before, after)
		}
	})
}

// Ensure that a check that is registered as critical ends its sessions.
func TestCatalog_N3_CriticalEndsSessions(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.registerWeb()
		s := h.create(`{"Node":"web1","NodeChecks":["up"]}`)
		h.want("PUT /v1/catalog/register", `{"Node":"web1","SkipNodeUpdate":true,
			"Check":{"CheckID":"up","Status":"critical","ServiceID":"w1"}}`, 200, "true")
		h.want("GET /v1/session/info/"+s.ID, "", 200, "[]")
	})
}

// Ensure that a check, a service and a node are removed with all that belongs to them, and that the
// removal of something unknown succeeds.
func TestCatalog_N4_Deregisters(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.registerWeb()
		s := h.create(`{"Node":"web1","NodeChecks":[]}`)
		for _, step := range []struct{ body, left string }{
			{`{"Node":"nobody"}`, "web1/disk web1/up"},
			{`{"Node":"web1","CheckID":"nothing"}`, "web1/disk web1/up"},
			{`{"Node":"web1","ServiceID":"nothing","CheckID":"up"}`, "web1/disk web1/up"},
			{`{"Node":"web1","ServiceID":"w1"}`, "web1/disk"},
			{`{"Node":"web1","CheckID":"DISK"}`, ""},
		} {
			h.want("PUT /v1/catalog/deregister", step.body, 200, "true")
			if got := h.checkIDs("/v1/health/node/web1"); got != step.left {
				t.Errorf("after %s: %s", step.body, got)
			}
		}
		h.info(s.ID)
		h.want("PUT /v1/catalog/deregister", `{"Node":"web1"}`, 200, "true")
		h.want("GET /v1/session/info/"+s.ID, "", 200, "[]")
		h.want("GET /v1/catalog/node/web1", "", 200, "null")
	})
}

// Ensure that a node with a new name ends the sessions of its old name.
func TestCatalog_N5_Renames(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.registerWeb()
		s := h.create(`{"Node":"web1","NodeChecks":[]}`)
		h.want("PUT /v1/catalog/register",
			`{"ID":"`+strings.ToUpper(uuidOfWeb1)+`","Node":"renamed","Address":"10.0.0.1"}`, 200,
			"true") // an ID is the same in any case
		h.want("GET /v1/session/info/"+s.ID, "", 200, "[]")
		h.want("GET /v1/catalog/node/web1", "", 200, "null")
	})
}

// Ensure that the ID of the node of this process is the same in any case too.
func TestCatalog_N5_RenamesTheOwnNode(t *testing.T) {
	opts := &consulapi.Options{NodeID: strings.ToUpper(uuidOfWeb1)}
	run(t, opts, func(h *harness) {
		h.want("PUT /v1/catalog/register",
			`{"ID":"`+uuidOfWeb1+`","Node":"renamed","Address":"10.0.0.1"}`, 200, "true")
		h.want("GET /v1/catalog/node/local", "", 200, "null")
	})
}

// Ensure that nobody gets the name of a node that is alive, such as the agent's own.
func TestCatalog_N5_ReservesNames(t *testing.T) {
	run(t, &consulapi.Options{NodeID: "99999999-9999-4999-8999-999999999999"}, func(h *harness) {
		h.registerWeb()
		s := h.create(`{"Node":"web1","NodeChecks":[]}`)
		const (
			node = `"Node":"LOCAL","ID":"` + uuidOfWeb1 + `"`
			why  = `Error while renaming Node ID: \"` + uuidOfWeb1 + `\": Node name LOCAL is ` +
				`reserved by node 99999999-9999-4999-8999-999999999999 with name local (127.0.0.1)`
		)
		register := `{` + node + `,"Address":"10.0.0.1"}`
		h.want("PUT /v1/catalog/register", register, 500,
			"failed inserting node: "+strings.ReplaceAll(why, `\`, ``))
		h.want("PUT /v1/txn", `[{"Node":{"Verb":"set","Node":`+register+`}}]`, 409,
			`{"Results":null,"Errors":[{"OpIndex":0,"What":"`+why+`"}]}`)
		if n, _ := h.db.Snapshot().Catalog().Node("local"); n.Address != "127.0.0.1" {
			t.Errorf("%+v", n)
		}
		h.info(s.ID)
		h.want("PUT /v1/catalog/register", `{"Node":"local","Address":"127.0.0.1",
			"ID":"99999999999949998999999999999999"}`, 200, "true") // its own, in another form
		h.want("PUT /v1/catalog/register", `{`+node+`,"SkipNodeUpdate":true}`, 200, "true")
		h.want("PUT /v1/catalog/register", `{"Node":"web1","Address":"a",
			"ID":"11111111-2222-4333-8444-555555555555"}`, 200, "true") // it has no serfHealth
		h.want("PUT /v1/catalog/register", `{"Node":"web2","Address":"a",
			"Check":{"CheckID":"serfHealth","Status":"passing"}}`, 200, "true")
		h.want("PUT /v1/catalog/register", `{"Node":"web2","Address":"a",
			"ID":"22222222-2222-4333-8444-555555555555"}`, 200, "true") // it has no ID
		h.want("PUT /v1/catalog/register", `{"Node":"local","Address":"127.0.0.1",
			"Check":{"CheckID":"serfHealth","Status":"critical"}}`, 200, "true")
		h.want("PUT /v1/catalog/register", register, 200, "true") // it is not alive
	})
}

// Ensure that serfHealth can be made critical, which ends the sessions that are bound to it, and
// passes again a minute later. If it was lost, also with its node, it is put back when needed.
func TestCatalog_N16_ComesBack(t *testing.T) {
	for _, step := range []string{
		`register {"Node":"local","SkipNodeUpdate":true,"Check":{"CheckID":"serfHealth"}}`,
		`deregister {"Node":"local","CheckID":"serfHealth"}`,
		`deregister {"Node":"local"}`,
		`/txn [{"Check":{"Verb":"set","Check":{"Node":"local","CheckID":"serfHealth"}}}]`,
	} {
		run(t, nil, func(h *harness) {
			for range 2 { // not the first time only
				s := h.create("")
				path, body, _ := strings.Cut(step, " ")
				path = strings.Replace("/v1/catalog/"+path, "catalog//", "", 1)
				if r := h.send("PUT "+path, body); r.code != 200 {
					t.Fatalf("%s: %d %s", step, r.code, r.body)
				}
				h.want("GET /v1/session/info/"+s.ID, "", 200, "[]")
				if !strings.HasPrefix(step, "deregister") {
					h.want("PUT /v1/session/create", "", 500,
						"apply failed: Check 'serfHealth' is in critical state")
				}
				h.advance(time.Minute)
				if got := h.checkIDs("/v1/health/state/passing"); got != "local/serfHealth" {
					t.Errorf("%s: %s", step, got)
				}
			}
			h.create("")
		})
	}
}

// Ensure that serfHealth passes again another minute later if it could not be committed.
func TestCatalog_N16_ComesBackAfterAFailedCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, db := withFaults(t)
		h.want("PUT /v1/catalog/register",
			`{"Node":"local","SkipNodeUpdate":true,"Check":{"CheckID":"serfHealth"}}`, 200, "true")
		for _, passing := range []string{"", "", "local/serfHealth"} {
			if passing == "" {
				db.FailNextCommit(errors.New("the disk is full"))
			}
			db.Advance(time.Minute)
			if got := h.checkIDs("/v1/health/state/passing"); got != passing {
				t.Errorf("passing: %q, not %q", got, passing)
			}
		}
	})
}

// Ensure that no client changes the node of this process, and that it comes back with the ID that
// it had. What is registered on it is there.
func TestCatalog_N16_TheOwnNodeStays(t *testing.T) {
	run(t, nil, func(h *harness) {
		own := func() string {
			n, _ := h.db.Snapshot().Catalog().Node("local")
			return fmt.Sprint(n.Name, n.ID, n.Address, n.Meta)
		}
		before := own()
		const (
			changed = `"Node":"LOCAL","Address":"10.0.0.1","TaggedAddresses":{"lan":"a"}`
			another = `{` + changed + `,"ID":"` + uuidOfWeb1 + `"}`
		)
		for _, step := range []string{
			`PUT /v1/catalog/register {` + changed + `,"NodeMeta":{"a":"b"},
				"Service":{"Service":"s"},"Check":{"Name":"c"}}`,
			`PUT /v1/txn [{"Node":{"Verb":"set","Node":{` + changed + `,"Meta":{"a":"b"}}}}]`,
			`PUT /v1/catalog/register {"Node":"local","SkipNodeUpdate":true,
				"Check":{"CheckID":"serfHealth"}}`,
			`PUT /v1/catalog/register ` + another, // its node is not alive (N5)
			`PUT /v1/txn [{"Node":{"Verb":"set","Node":` + another + `}}]`,
		} {
			parts := strings.SplitN(step, " ", 3)
			if r := h.send(parts[0]+" "+parts[1], parts[2]); r.code != 200 {
				t.Errorf("%s: %d %s", step, r.code, r.body)
			}
			if after := own(); after != before {
				t.Errorf("%s made %s of %s", step, after, before)
			}
		}
		h.want("GET /v1/catalog/services", "", 200, `{"s":[]}`)
		h.want("PUT /v1/catalog/deregister", `{"Node":"local"}`, 200, "true")
		h.want("PUT /v1/catalog/register", `{`+changed+`}`, 200, "true")
		if after := own(); after != before {
			t.Errorf("it was %s, and came back as %s", before, after)
		}
		h.want("PUT /v1/catalog/deregister", `{"Node":"local"}`, 200, "true")
		h.advance(time.Minute)
		if after := own(); after != before {
			t.Errorf("it was %s, and came back a minute later as %s", before, after)
		}
	})
}

// Ensure that a request for a session with a check that is not there does not make serfHealth pass.
func TestCatalog_N16_AMissingCheckChangesNothing(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/catalog/register",
			`{"Node":"local","SkipNodeUpdate":true,"Check":{"CheckID":"serfHealth"}}`, 200, "true")
		before := h.db.Snapshot().Index()
		h.want("PUT /v1/session/create", `{"NodeChecks":["none"]}`, 500,
			"apply failed: Missing check 'none' registration")
		if after := h.db.Snapshot().Index(); after != before {
			t.Errorf("the index went from %d to %d", before, after)
		}
	})
}

// Ensure that serfHealth comes back also if it went with a service that a client had given it to.
func TestCatalog_N16_ComesBackFromAService(t *testing.T) {
	run(t, nil, func(h *harness) {
		const register = "PUT /v1/agent/service/register"
		for target, body := range map[string]string{
			"PUT /v1/agent/service/deregister/web": "",
			register + "?replace-existing-checks":  `{"Name":"web"}`,
		} {
			h.want(register, `{"Name":"web"}`, 200, "")
			h.want("PUT /v1/catalog/register", `{"Node":"local","SkipNodeUpdate":true,"Check":{
				"CheckID":"serfHealth","Status":"passing","ServiceID":"web"}}`, 200, "true")
			h.want(target, body, 200, "")
			if got := h.checkIDs("/v1/health/state/passing"); got != "" {
				t.Errorf("%s: passing at once: %s", target, got)
			}
			h.advance(time.Minute)
			if got := h.checkIDs("/v1/health/state/passing"); got != "local/serfHealth" {
				t.Errorf("%s: passing: %s", target, got)
			}
		}
	})
}

// Ensure that the reads of the catalog have Consul's members, empty lists and null.
func TestCatalog_N18T15_Reads(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.registerWeb()
		web1, _ := h.db.Snapshot().Catalog().Node("web1")
		w1, _ := h.db.Snapshot().Catalog().Service("web1", "w1")
		node := fmt.Sprintf(`{"ID":"%s","Node":"web1","Address":"10.0.0.1","Datacenter":"dc1",`+
			`"TaggedAddresses":null,"Meta":{"rack":"7"},"CreateIndex":%d,"ModifyIndex":%d}`,
			uuidOfWeb1, web1.CreateIndex, web1.ModifyIndex)
		service := fmt.Sprintf(`{"ID":"w1","Service":"web","Tags":["a","b"],"Address":"",`+
			`"Meta":{"v":"1"},"Port":80,"Weights":{"Passing":1,"Warning":1},`+
			`"EnableTagOverride":false,"Proxy":{},"Connect":{},"CreateIndex":%d,"ModifyIndex":%d}`,
			w1.CreateIndex, w1.ModifyIndex)
		h.want("GET /v1/catalog/node/WEB1", "", 200,
			`{"Node":`+node+`,"Services":{"w1":`+service+`}}`)
		h.want("GET /v1/catalog/node/nobody", "", 200, "null")
		h.want("GET /v1/catalog/node/", "", 400, "Bad request: Missing node name")
		h.want("GET /v1/catalog/services", "", 200, `{"web":["a","b","c"]}`)
		h.want("GET /v1/catalog/services?node-meta=rack:7", "", 200, `{"web":["a","b"]}`)
		h.want("PUT /v1/catalog/register", `{"Node":"web2","SkipNodeUpdate":true,
			"Service":{"ID":"another","Service":"web","Tags":["c","a"]}}`, 200, "true")
		h.want("GET /v1/catalog/services", "", 200, `{"web":["a","b","c"]}`)
		both := decode[struct{ Services map[string]any }](h,
			h.send("GET /v1/catalog/node/web2", "")).Services
		if len(both) != 2 || both["another"] == nil || both["web"] == nil {
			t.Errorf("%v", both)
		}
		h.want("PUT /v1/catalog/deregister", `{"Node":"web2","ServiceID":"another"}`, 200, "true")
		h.want("GET /v1/catalog/service/nothing", "", 200, `[]`)
		h.want("GET /v1/catalog/service/", "", 400, "Bad request: Missing service name")
		h.want("GET /v1/catalog/datacenters", "", 200, `["dc1"]`)
		for _, list := range []string{"catalog/nodes", "agent/services", "agent/checks"} {
			h.want("GET /v1/"+list+"?filter=x", "", 400,
				"Bad request: lockd has no filter expressions")
		}
		h.want("GET /v1/catalog/nodes?node-meta=rack:7", "", 200, "["+node+"]")
		h.want("GET /v1/catalog/nodes?node-meta=row:", "", 200, "[]") // no node has a row
		h.want("GET /v1/catalog/nodes?node-meta=rack:1&node-meta=rack:7", "", 200, "["+node+"]")
		h.want("GET /v1/catalog/nodes?node-meta=rack:7&node-meta=rack:1", "", 200, "[]")

		type named struct{ Node string }
		r := h.send("GET /v1/catalog/nodes", "")
		nodes := decode[[]named](h, r)
		if !slices.Equal(nodes, []named{{"local"}, {"web1"}, {"web2"}}) {
			t.Errorf("%v", nodes)
		}
		if r.header.Get("X-Consul-KnownLeader") != "true" || r.index() < 2 { // A4
			t.Errorf("%v", r.header)
		}
		type found struct {
			Node, Address, ServiceID, ServiceName, ServiceAddress string
			ServicePort                                           int
			ServiceTags                                           []string
		}
		for path, want := range map[string]int{
			"web": 2, "WEB": 2, "web?tag=B": 2, "web?tag=a": 1, "web?tag=a&tag=c": 0,
			"web?node-meta=rack:7": 1,
		} {
			got := decode[[]found](h, h.send("GET /v1/catalog/service/"+path, ""))
			if len(got) != want {
				t.Errorf("%s: %v", path, got)
			}
		}
	})
}

// Ensure that a service without a port is shown as Consul shows it: as the service of a node it has
// no Port, and in the list of its name it has each member that a service may have.
func TestCatalog_T15_ServiceWithoutPort(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/catalog/register", `{"Node":"n","Address":"a","Service":{"Service":"s"}}`,
			200, "true")
		got := `{"KV":null,"Service":{"Verb":"get","Node":"n","Service":{"ID":"s"}}}`
		for target, body := range map[string]string{
			"GET /v1/catalog/node/n": "", "GET /v1/health/service/s": "",
			"PUT /v1/txn": "[" + got + "]",
		} {
			r := h.send(target, body)
			if !strings.Contains(r.body, `"Meta":null,"Weights":`) {
				t.Errorf("%s: %d %s", target, r.code, r.body)
			}
		}
		r := h.send("GET /v1/catalog/service/s", "")
		want := `"ServicePort":0,"ServiceSocketPath":"","ServiceEnableTagOverride":false`
		if !strings.Contains(r.body, want) {
			t.Errorf("%s has no %s", r.body, want)
		}
	})
}

// Ensure that nothing is registered, or taken away, in a namespace or a partition: it would be in
// the only place that there is.
func TestCatalog_N1N4_NoNamespaces(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.registerWeb()
		before := h.db.Snapshot().Index()
		for _, member := range []string{`"Namespace":"x"`, `"Partition":"default"`} {
			for _, body := range []string{
				`%s`, `"Service":{"Service":"s",%s}`, `"Check":{"Name":"c",%s}`,
				`"Checks":[{"Name":"c"},{"Name":"d",%s}]`,
			} {
				body = `{"Node":"web1","Address":"a",` + fmt.Sprintf(body, member) + `}`
				h.want("PUT /v1/catalog/register", body, 400,
					"Bad request: Namespaces and Partitions are a Consul Enterprise feature")
			}
			h.want("PUT /v1/catalog/deregister", `{"Node":"web1",`+member+`}`, 400,
				"Bad request: Namespaces and Partitions are a Consul Enterprise feature")
		}
		if now := h.db.Snapshot().Index(); now != before {
			t.Errorf("the index went from %d to %d", before, now)
		}
		h.want("PUT /v1/catalog/register", `{"Node":"n","Address":"a","Namespace":"",
			"Partition":null,"Service":{"Service":"s","Namespace":"","Partition":null}}`,
			200, "true")
		h.want("PUT /v1/catalog/deregister", `{"Node":"n","Namespace":""}`, 200, "true")
	})
}

// Ensure that /v1/catalog/node finds a node by its ID too, or by what only its ID begins with, and
// that no name is taken for an ID. The checks and sessions of a node are found by its name alone.
func TestCatalog_N18_NodeByID(t *testing.T) {
	run(t, &consulapi.Options{NodeID: "40e4ffff-9999-4999-8999-999999999999"}, func(h *harness) {
		h.registerWeb()
		h.want("PUT /v1/catalog/register", `{"Node":"40e4ffff","Address":"x"}`, 200, "true")
		h.want("PUT /v1/catalog/register", `{"Node":"nine","Address":"x",
			"ID":"99999999-9999-4999-8999-999999999999"}`, 200, "true")
		for id, name := range map[string]string{
			uuidOfWeb1: "web1", strings.ToUpper(uuidOfWeb1): "web1", "40e4a": "web1",
			strings.ReplaceAll(uuidOfWeb1, "-", ""): "web1", "40e4a748-2": "web1",
			"40e4fff": "local", "40e4ffff": "40e4ffff", // which is the name of a node
			"9": "", "99": "nine", "40e4": "", "4": "", "--": "", uuidOfWeb1 + "0": "", "web": "",
		} {
			found := decode[struct{ Node struct{ Node string } }](h,
				h.send("GET /v1/catalog/node/"+id, "")) // empty for null
			if got := found.Node.Node; got != name {
				t.Errorf("%s is the node %q, not %q", id, got, name)
			}
		}
		h.want("GET /v1/health/node/"+uuidOfWeb1, "", 200, "[]")
		h.want("GET /v1/session/node/"+uuidOfWeb1, "", 200, "[]")
	})
}

// Ensure that a registration puts checks on no other node than its own.
func TestCatalog_N2_ChecksOfOtherNodes(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, node := range []string{"local", "nobody"} {
			for _, service := range []string{``, `"Service":{"Service":"s"},`} {
				h.want("PUT /v1/catalog/register", `{"Node":"n","Address":"10.0.0.1",`+service+
					`"Check":{"Node":"`+node+`","Name":"c"}}`, 500,
					"Node '"+node+"' for check 'c' doesn't match register request node 'n'")
			}
		}
		h.want("PUT /v1/catalog/register", `{"Node":"n","Address":"10.0.0.1",
			"Check":{"Node":"N","Name":"c"}}`, 200, "true")
		if got := h.checkIDs("/v1/health/state/critical"); got != "n/c" && got != "N/c" {
			t.Error(got)
		}
	})
}

// Ensure that the Meta of a service is an object where Consul shows one, also if there is none.
func TestCatalog_N18_NoMeta(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/agent/service/register", `{"Name":"web"}`, 200, "")
		for path, want := range map[string]string{
			"catalog/service/web": `"ServiceMeta":{}`,
			"agent/services":      `"Meta":{}`,
			"agent/service/web":   `"Meta":{}`,
			"catalog/node/local":  `"Meta":null`,
		} {
			if r := h.send("GET /v1/"+path, ""); !strings.Contains(r.body, want) {
				t.Errorf("%s: %s", path, r.body)
			}
		}
	})
}

// Ensure that a read of the catalog waits for a change of the catalog, and for nothing else.
func TestCatalog_B4_Blocks(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.registerWeb()
		index := h.send("GET /v1/catalog/nodes", "").index()
		var waiting []<-chan reply
		for _, path := range []string{
			"catalog/nodes", "catalog/services", "catalog/service/web", "catalog/node/web1",
			"health/node/web1", "health/checks/web", "health/state/any", "health/service/web",
			"query",
		} {
			waiting = append(waiting, h.blocked(fmt.Sprintf("GET /v1/%s?index=%d", path, index)))
		}
		h.put("a", "1")
		for _, replies := range waiting {
			h.waits(replies)
		}
		h.want("PUT /v1/catalog/deregister", `{"Node":"web2"}`, 200, "true")
		for _, replies := range waiting {
			if r := h.answered(replies); r.code != 200 || r.index() <= index {
				t.Errorf("%d %s at %d", r.code, r.body, r.index())
			}
		}
	})
}

// Ensure that a read of the catalog says how consistent it is.
func TestCatalog_B15_Consistency(t *testing.T) {
	run(t, &consulapi.Options{Datacenter: "here"}, func(h *harness) {
		for query, want := range map[string]string{
			"": "leader", "?stale": "stale", "?consistent": "consistent",
			"?max_stale=1s": "stale", "?max_stale=0s": "leader",
		} {
			r := h.send("GET /v1/catalog/nodes"+query, "")
			if got := r.header.Get("X-Consul-Effective-Consistency"); got != want {
				t.Errorf("%q: %q", query, got)
			}
		}
		h.want("GET /v1/catalog/datacenters", "", 200, `["here"]`)
	})
}
