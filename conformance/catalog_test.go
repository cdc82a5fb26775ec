package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

const nodeID = "40e4a748-2192-161a-0510-9bf59fe950b5"

// register puts a node, and what is on it, into the catalog.
func (h *harness) register(r api.CatalogRegistration) {
	h.t.Helper()
	_, err := h.Catalog().Register(&r, nil)
	check(h.t, err)
}

// external registers a node of another machine, with a service and its check.
func (h *harness) external(status string) {
	h.t.Helper()
	h.register(api.CatalogRegistration{
		ID: nodeID, Node: "foo", Address: "192.0.2.1", NodeMeta: map[string]string{"rack": "1"},
		Service: &api.AgentService{
			ID: "db1", Service: "db", Tags: []string{"primary", "v1"}, Port: 5432,
			Meta: map[string]string{"version": "17"},
		},
		Checks: api.HealthChecks{
			{Node: "foo", CheckID: "foo:alive", Name: "alive", Status: api.HealthPassing},
			{Node: "foo", CheckID: "foo:db", Name: "db", ServiceID: "db1", Status: status},
		},
	})
}

// setCheck changes the status of a check of the node foo.
func (h *harness) setCheck(id, service, status string) {
	h.t.Helper()
	h.register(api.CatalogRegistration{
		Node: "foo", SkipNodeUpdate: true,
		Check: &api.AgentCheck{
			Node: "foo", CheckID: id, Name: id, ServiceID: service, Status: status,
		},
	})
}

// deregister takes something out of the catalog.
func (h *harness) deregister(d api.CatalogDeregistration) {
	h.t.Helper()
	_, err := h.Catalog().Deregister(&d, nil)
	check(h.t, err)
}

// boundTo makes a session that is bound to the checks of a node, and has a key's lock.
func (h *harness) boundTo(key, node string, checks ...string) string {
	h.t.Helper()
	id := h.session(&api.SessionEntry{Node: node, NodeChecks: checks})
	equal(h, "acquire", h.acquire(key, id, ""), true)
	return id
}

// wantLost fails the test unless the session has ended and thereby released the key's lock, which
// must be delayed.
func (h *harness) wantLost(id, key string) {
	h.t.Helper()
	if h.info(id) != nil {
		h.t.Fatal("the session lives on")
	}
	equal(h, "holder", h.get(key).Session, "")
	equal(h, "S32: during the lock-delay", h.acquire(key, h.session(nil), ""), false)
}

// wantHeld fails the test unless the session lives and has the key's lock.
func (h *harness) wantHeld(id, key string) {
	h.t.Helper()
	if h.info(id) == nil {
		h.t.Fatal("the session has ended")
	}
	equal(h, "holder", h.get(key).Session, id)
}

func TestN14X21_TheOwnNodeIsThereFromTheStart(t *testing.T) {
	each(t, func(h *harness) {
		nodes, meta, err := h.Catalog().Nodes(nil)
		check(h.t, err)
		if len(nodes) != 1 || nodes[0].Node != h.db.Node() || nodes[0].ID == "" ||
			nodes[0].Datacenter != "dc1" || nodes[0].Address == "" {
			h.t.Fatalf("%+v", nodes)
		}
		if !meta.KnownLeader || meta.LastIndex < 2 {
			h.t.Fatalf("A4: %+v", meta)
		}
		checks, _, err := h.Health().Node(nodes[0].Node, nil)
		check(h.t, err)
		if len(checks) != 1 || checks[0].CheckID != "serfHealth" ||
			checks[0].Status != api.HealthPassing {
			h.t.Fatalf("A5: %+v", checks)
		}
		centers, err := h.Catalog().Datacenters()
		check(h.t, err)
		equal(h, "datacenters", strings.Join(centers, " "), "dc1")
	})
}

func TestN1N18_WhatIsRegisteredIsFound(t *testing.T) {
	each(t, func(h *harness) {
		h.external(api.HealthWarning)
		nodes, _, err := h.Catalog().Nodes(nil)
		check(h.t, err)
		at := slices.IndexFunc(nodes, func(n *api.Node) bool { return n.Node == "foo" })
		if len(nodes) != 2 || at < 0 || nodes[at].ID != nodeID ||
			nodes[at].Address != "192.0.2.1" || nodes[at].Meta["rack"] != "1" {
			h.t.Fatalf("%+v", nodes)
		}
		node, _, err := h.Catalog().Node("foo", nil)
		check(h.t, err)
		db := node.Services["db1"]
		if len(node.Services) != 1 || db.Service != "db" || db.Port != 5432 ||
			strings.Join(db.Tags, " ") != "primary v1" || db.Meta["version"] != "17" {
			h.t.Fatalf("%+v", node)
		}
		services, _, err := h.Catalog().Services(nil)
		check(h.t, err)
		if tags := services["db"]; len(tags) != 2 {
			h.t.Fatalf("%v", services)
		}
		for tag, want := range map[string]int{"": 1, "v1": 1, "v2": 0} {
			found, _, err := h.Catalog().Service("db", tag, nil)
			check(h.t, err)
			equal(h, "with tag "+tag, len(found), want)
			if want == 1 && (found[0].Node != "foo" || found[0].ServiceID != "db1" ||
				found[0].ServicePort != 5432 || found[0].Address != "192.0.2.1") {
				h.t.Fatalf("%+v", found[0])
			}
		}
		if node, _, err = h.Catalog().Node("none", nil); err != nil || node != nil {
			h.t.Fatalf("%+v, %v", node, err)
		}
	})
}

func TestN18_HealthOfWhatIsRegistered(t *testing.T) {
	each(t, func(h *harness) {
		h.external(api.HealthWarning)
		ids := func(checks api.HealthChecks, _ *api.QueryMeta, err error) string {
			h.t.Helper()
			check(h.t, err)
			var ids []string
			for _, c := range checks {
				ids = append(ids, c.CheckID+"="+c.Status)
			}
			slices.Sort(ids)
			return strings.Join(ids, " ")
		}
		const alive, db = "foo:alive=passing", "foo:db=warning"
		equal(h, "node", ids(h.Health().Node("foo", nil)), alive+" "+db)
		equal(h, "no node", ids(h.Health().Node("none", nil)), "")
		equal(h, "checks", ids(h.Health().Checks("db", nil)), db)
		equal(h, "warning", ids(h.Health().State(api.HealthWarning, nil)), db)
		equal(h, "critical", ids(h.Health().State(api.HealthCritical, nil)), "")
		equal(h, "any", ids(h.Health().State(api.HealthAny, nil)),
			alive+" "+db+" serfHealth=passing")

		for passingOnly, want := range map[bool]int{false: 1, true: 0} {
			found, _, err := h.Health().Service("db", "v1", passingOnly, nil)
			check(h.t, err)
			equal(h, fmt.Sprintf("passing only: %v", passingOnly), len(found), want)
			if want == 1 && (found[0].Node.Node != "foo" || found[0].Service.ID != "db1" ||
				found[0].Checks.AggregatedStatus() != api.HealthWarning) {
				h.t.Fatalf("%+v", found[0])
			}
		}
	})
}

func TestN1N2_RegistrationsThatAreRefused(t *testing.T) {
	each(t, func(h *harness) {
		for _, test := range []struct {
			registration api.CatalogRegistration
			text         string
		}{
			{api.CatalogRegistration{Address: "192.0.2.1"}, "500 (Must provide node)"},
			{api.CatalogRegistration{Node: "foo"},
				"500 (Must provide address if SkipNodeUpdate is not set)"},
			{api.CatalogRegistration{Node: "foo", Address: "192.0.2.1", ID: "x"},
				"500 (Bad node ID: "},
			{api.CatalogRegistration{
				Node: "foo", Address: "192.0.2.1",
				Check: &api.AgentCheck{CheckID: "c", Name: "c", ServiceID: "s"},
			}, "500 (Unknown service ID 's' for check ID 'c')"},
		} {
			_, err := h.Catalog().Register(&test.registration, nil)
			h.refused(err, test.text)
		}
		nodes, _, err := h.Catalog().Nodes(nil)
		check(h.t, err)
		equal(h, "nodes", len(nodes), 1)

		h.register(api.CatalogRegistration{
			Node: "foo", Address: "192.0.2.1", Check: &api.AgentCheck{Name: "c"},
		})
		checks, _, err := h.Health().Node("foo", nil)
		check(h.t, err)
		if len(checks) != 1 || checks[0].CheckID != "c" ||
			checks[0].Status != api.HealthCritical {
			h.t.Fatalf("N2: %+v", checks)
		}
	})
}

func TestN3N17_ACheckThatIsCriticalEndsItsSessions(t *testing.T) {
	each(t, func(h *harness) {
		h.external(api.HealthPassing)
		bound := h.boundTo("a", "FOO", "foo:ALIVE")
		other := h.boundTo("b", "foo", "foo:db")
		h.setCheck("foo:alive", "", api.HealthWarning)
		h.wantHeld(bound, "a")
		h.setCheck("foo:alive", "", api.HealthCritical)
		h.wantLost(bound, "a")
		h.wantHeld(other, "b") // S30: another check was critical

		_, _, err := h.Session().Create(
			&api.SessionEntry{Node: "foo", NodeChecks: []string{"foo:alive"}}, nil)
		h.refused(err, "Check 'foo:alive' is in critical state") // S18
	})
}

func TestN4_WhatIsDeregisteredEndsItsSessions(t *testing.T) {
	each(t, func(h *harness) {
		for i, d := range []api.CatalogDeregistration{
			{Node: "foo"},
			{Node: "foo", ServiceID: "db1"},
			{Node: "foo", CheckID: "foo:db"},
		} {
			h.external(api.HealthPassing)
			key := fmt.Sprintf("key/%d", i)
			id := h.boundTo(key, "foo", "foo:db")
			h.deregister(d)
			h.wantLost(id, key)
			h.deregister(d) // what no longer exists
		}
		_, err := h.Catalog().Deregister(&api.CatalogDeregistration{}, nil)
		h.refused(err, "500 (Must provide node)")
	})
}

func TestN5X36_ANodeThatIsRenamedEndsItsSessions(t *testing.T) {
	each(t, func(h *harness) {
		h.external(api.HealthPassing)
		id := h.boundTo("a", "foo", "foo:alive")
		h.register(api.CatalogRegistration{ID: nodeID, Node: "bar", Address: "192.0.2.1"})
		h.wantLost(id, "a")
		node, _, err := h.Catalog().Node("foo", nil)
		check(h.t, err)
		if node != nil {
			h.t.Fatalf("%+v", node)
		}
	})
}

func TestN15_AnExternalNodeHasNoSerfHealth(t *testing.T) {
	each(t, func(h *harness) {
		h.external(api.HealthPassing)
		_, _, err := h.Session().Create(&api.SessionEntry{Node: "foo"}, nil)
		h.refused(err, "apply failed: Missing check 'serfHealth' registration")
	})
}

func TestN16_SerfHealthCriticalEndsTheDefaultSessions(t *testing.T) {
	each(t, func(h *harness) {
		id, _, err := h.Session().CreateNoChecks(nil, nil)
		check(h.t, err)
		bound := h.session(nil)
		h.register(api.CatalogRegistration{
			Node: h.db.Node(), SkipNodeUpdate: true,
			Check: &api.AgentCheck{
				Node: h.db.Node(), CheckID: "serfHealth", Name: "Serf Health Status",
				Status: api.HealthCritical,
			},
		})
		if h.info(bound) != nil {
			h.t.Fatal("the default session lives on")
		}
		if h.info(id) == nil {
			h.t.Fatal("the session without checks has ended")
		}
	})
}

func TestS8_ASessionIsBoundToTheChecksOfServices(t *testing.T) {
	each(t, func(h *harness) {
		h.register(api.CatalogRegistration{ // A12: without an address
			Node: h.db.Node(), SkipNodeUpdate: true,
			Service: &api.AgentService{Service: "redis", ID: "redis"},
			Check: &api.AgentCheck{
				Node: h.db.Node(), CheckID: "redis:alive", Name: "redis", ServiceID: "redis",
				Status: api.HealthPassing,
			},
		})
		id := h.session(&api.SessionEntry{
			NodeChecks:    []string{"serfHealth"},
			ServiceChecks: []api.ServiceCheck{{ID: "redis:alive"}},
		})
		s := h.info(id)
		if len(s.NodeChecks) != 1 || len(s.ServiceChecks) != 1 ||
			s.ServiceChecks[0].ID != "redis:alive" {
			h.t.Fatalf("%+v", s)
		}
		h.deregister(api.CatalogDeregistration{Node: h.db.Node(), ServiceID: "redis"})
		if h.info(id) != nil {
			h.t.Fatal("the session lives on")
		}
	})
}

func TestB4_ReadsOfTheCatalogBlock(t *testing.T) {
	each(t, func(h *harness) {
		h.external(api.HealthPassing)
		blocked := func(read func(q *api.QueryOptions) (int, *api.QueryMeta, error)) <-chan int {
			h.t.Helper()
			n, meta, err := read(nil)
			check(h.t, err)
			return call(func() int { // until it is another number
				for {
					q := &api.QueryOptions{WaitIndex: meta.LastIndex}
					var next int
					var err error
					if next, meta, err = read(q); err != nil || next != n {
						return next + failed(h, err)
					}
				}
			})
		}
		nodes := blocked(func(q *api.QueryOptions) (int, *api.QueryMeta, error) {
			nodes, meta, err := h.Catalog().Nodes(q)
			return len(nodes), meta, err
		})
		services := blocked(func(q *api.QueryOptions) (int, *api.QueryMeta, error) {
			services, meta, err := h.Catalog().Services(q)
			return len(services), meta, err
		})
		healthy := blocked(func(q *api.QueryOptions) (int, *api.QueryMeta, error) {
			found, meta, err := h.Health().Service("db", "", true, q)
			return len(found), meta, err
		})
		h.advance(time.Second)
		h.setCheck("foo:db", "db1", api.HealthCritical)
		equal(h, "healthy instances", receive(h, healthy), 0)
		h.register(api.CatalogRegistration{
			Node: "bar", Address: "192.0.2.2", Service: &api.AgentService{Service: "web"},
		})
		equal(h, "nodes", receive(h, nodes), 3)
		receive(h, services)
	})
}

func TestN13T13T15_TheCatalogInATransaction(t *testing.T) {
	each(t, func(h *harness) {
		node := api.Node{ID: nodeID, Node: "foo", Address: "192.0.2.1", Datacenter: "dc1"}
		service := api.AgentService{ID: "db1", Service: "db", Port: 5432}
		probe := api.HealthCheck{
			Node: "foo", CheckID: "foo:db", Name: "db", Status: api.HealthPassing,
			ServiceID: "db1",
			Definition: api.HealthCheckDefinition{
				TCP: "192.0.2.1:5432", IntervalDuration: 5 * time.Second,
				TimeoutDuration: time.Second,
			},
		}
		ops := api.TxnOps{
			{Node: &api.NodeTxnOp{Verb: api.NodeSet, Node: node}},
			{Service: &api.ServiceTxnOp{Verb: api.ServiceSet, Node: "foo", Service: service}},
			{Check: &api.CheckTxnOp{Verb: api.CheckSet, Check: probe}},
		}
		ok, response, _, err := h.Txn().Txn(ops, nil)
		check(h.t, err)
		if !ok || len(response.Results) != 3 || response.Results[0].Node.ID != nodeID ||
			response.Results[1].Service.Port != 5432 ||
			response.Results[2].Check.Status != api.HealthPassing ||
			response.Results[2].Check.Definition.IntervalDuration != 5*time.Second {
			h.t.Fatalf("%v %v %+v", ok, whats(response.Errors), response.Results)
		}
		id := h.boundTo("a", "foo", "foo:db")
		probe.Status = api.HealthCritical
		ok, response, _, err = h.Txn().Txn(api.TxnOps{
			{Check: &api.CheckTxnOp{Verb: api.CheckSet, Check: probe}},
			{KV: &api.KVTxnOp{Verb: api.KVCheckSession, Key: "a"}}, // free already
		}, nil)
		check(h.t, err)
		equal(h, "ok", ok, true)
		equal(h, "failures", whats(response.Errors), "")
		h.wantLost(id, "a")

		ok, response, _, err = h.Txn().Txn(api.TxnOps{
			{Node: &api.NodeTxnOp{Verb: api.NodeDelete, Node: node}},
			{Node: &api.NodeTxnOp{Verb: api.NodeGet, Node: node}},
		}, nil)
		check(h.t, err)
		if ok || len(response.Errors) != 1 || response.Errors[0].OpIndex != 1 {
			h.t.Fatalf("%v %v", ok, whats(response.Errors))
		}
		found, _, err := h.Catalog().Node("foo", nil)
		check(h.t, err)
		if found == nil {
			h.t.Fatal("T8: the node is gone")
		}
	})
}

func TestT15_TaggedAddressesAndTagsOfATransaction(t *testing.T) {
	each(t, func(h *harness) {
		tagged := map[string]api.ServiceAddress{"wan": {Address: "192.0.2.9", Port: 81}}
		ok, response, _, err := h.Txn().Txn(api.TxnOps{
			{Node: &api.NodeTxnOp{Verb: api.NodeSet, Node: api.Node{
				Node: "n", Address: "192.0.2.7",
				TaggedAddresses: map[string]string{"lan": "192.0.2.8"},
			}}},
			{Service: &api.ServiceTxnOp{Verb: api.ServiceSet, Node: "n", Service: api.AgentService{
				Service: "s", TaggedAddresses: tagged,
			}}},
			{Check: &api.CheckTxnOp{Verb: api.CheckSet, Check: api.HealthCheck{
				Node: "n", CheckID: "c", ServiceID: "s",
			}}},
		}, nil)
		check(h.t, err)
		if !ok || len(response.Results) != 3 {
			h.t.Fatalf("%v %+v", ok, response)
		}
		if c := response.Results[2].Check; c.ServiceTags != nil {
			h.t.Errorf("tags that nobody gave: %#v", c.ServiceTags)
		}
		services, _, err := h.Catalog().Service("s", "", nil)
		check(h.t, err)
		if len(services) != 1 || services[0].TaggedAddresses["lan"] != "192.0.2.8" ||
			services[0].ServiceTaggedAddresses["wan"] != tagged["wan"] ||
			len(services[0].NodeMeta) != 0 || len(services[0].ServiceMeta) != 0 {
			h.t.Errorf("%+v", services)
		}
	})
}
