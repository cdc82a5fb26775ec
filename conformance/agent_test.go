package conformance_test

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// ttlCheck registers a check with a TTL with the agent.
func (h *harness) ttlCheck(id string, ttl time.Duration) {
	h.t.Helper()
	check(h.t, h.Agent().CheckRegister(&api.AgentCheckRegistration{
		ID: id, Name: id,
		AgentServiceCheck: api.AgentServiceCheck{TTL: ttl.String(), Status: api.HealthPassing},
	}))
}

// statusOf returns the status of a check of the agent, "" if it does not exist.
func (h *harness) statusOf(id string) string {
	h.t.Helper()
	checks, err := h.Agent().Checks()
	check(h.t, err)
	if checks[id] == nil {
		return ""
	}
	return checks[id].Status
}

func TestA9_TheAgentTellsWhoItIs(t *testing.T) {
	each(t, func(h *harness) {
		name, err := h.Agent().NodeName() // C7: the client's command needs it
		check(h.t, err)
		equal(h, "name", name, h.db.Node())
		self, err := h.Agent().Self()
		check(h.t, err)
		equal(h, "datacenter", self["Config"]["Datacenter"], any("dc1"))
		members, err := h.Agent().Members(false)
		check(h.t, err)
		if len(members) != 1 || members[0].Name != name {
			h.t.Fatalf("%+v", members)
		}
	})
}

func TestN6_AgentChecksThatAreRefused(t *testing.T) {
	each(t, func(h *harness) {
		err := h.Agent().CheckRegister(&api.AgentCheckRegistration{ID: "c"})
		h.refused(err, "400 (Bad request: Missing check name)")
		err = h.Agent().CheckRegister(&api.AgentCheckRegistration{Name: "c"})
		h.refused(err, "400 (Bad request: Invalid check: TTL must be > 0 for TTL checks)")
		check(h.t, h.Agent().CheckRegister(&api.AgentCheckRegistration{
			Name: "c", AgentServiceCheck: api.AgentServiceCheck{TTL: "10s"},
		}))
		equal(h, "status at first", h.statusOf("c"), api.HealthCritical)
	})
}

func TestN7_UpdatesOfAnAgentCheck(t *testing.T) {
	each(t, func(h *harness) {
		h.ttlCheck("c", time.Minute)
		id := h.boundTo("a", "", "c")
		for _, test := range []struct {
			update func() error
			status string
		}{
			{func() error { return h.Agent().PassTTL("c", "fine") }, api.HealthPassing},
			{func() error { return h.Agent().WarnTTL("c", "hm") }, api.HealthWarning},
			{func() error { return h.Agent().UpdateTTL("c", "ok", "pass") }, api.HealthPassing},
		} {
			check(h.t, test.update())
			equal(h, "status", h.statusOf("c"), test.status)
			h.wantHeld(id, "a")
		}
		checks, err := h.Agent().Checks()
		check(h.t, err)
		equal(h, "output", checks["c"].Output, "ok")
		check(h.t, h.Agent().FailTTL("c", "broken"))
		equal(h, "status", h.statusOf("c"), api.HealthCritical)
		h.wantLost(id, "a")
		h.refused(h.Agent().UpdateTTL("x", "", "pass"), `404 (Unknown check ID "x"`)
	})
}

func TestN8_AnAgentCheckThatLapsesEndsItsSessions(t *testing.T) {
	each(t, func(h *harness) {
		h.ttlCheck("c", 10*time.Second)
		id := h.boundTo("a", "", "c")
		h.advance(9 * time.Second)
		check(h.t, h.Agent().UpdateTTL("c", "", "pass"))
		h.advance(10*time.Second - time.Nanosecond)
		h.wantHeld(id, "a")
		h.advance(time.Nanosecond)
		equal(h, "status", h.statusOf("c"), api.HealthCritical)
		h.wantLost(id, "a")
	})
}

func TestN9_WhatIsTakenFromTheAgentEndsItsSessions(t *testing.T) {
	each(t, func(h *harness) {
		h.ttlCheck("c", time.Minute)
		id := h.boundTo("a", "", "c")
		check(h.t, h.Agent().CheckDeregister("c"))
		h.wantLost(id, "a")

		check(h.t, h.Agent().ServiceRegister(&api.AgentServiceRegistration{
			Name:  "web",
			Check: &api.AgentServiceCheck{CheckID: "web:ttl", TTL: "1m", Status: "passing"},
		}))
		id = h.boundTo("b", "", "web:ttl")
		check(h.t, h.Agent().ServiceDeregister("web"))
		h.wantLost(id, "b")
		equal(h, "its check", h.statusOf("web:ttl"), "")
	})
}

func TestN10N11X23_MaintenanceLeavesSessionsAlone(t *testing.T) {
	each(t, func(h *harness) {
		check(h.t, h.Agent().ServiceRegister(&api.AgentServiceRegistration{
			Name:  "web",
			Check: &api.AgentServiceCheck{CheckID: "web:ttl", TTL: "1m", Status: "passing"},
		}))
		id := h.boundTo("a", "", "serfHealth", "web:ttl")
		check(h.t, h.Agent().EnableNodeMaintenance("repair"))
		check(h.t, h.Agent().EnableServiceMaintenance("web", "repair"))
		equal(h, "node", h.statusOf(api.NodeMaint), api.HealthCritical)
		h.wantHeld(id, "a")
		h.session(nil)
		found, _, err := h.Health().Service("web", "", true, nil)
		check(h.t, err)
		equal(h, "healthy instances", len(found), 0)
		check(h.t, h.Agent().DisableNodeMaintenance())
		check(h.t, h.Agent().DisableServiceMaintenance("web"))
		equal(h, "node", h.statusOf(api.NodeMaint), "")
		found, _, err = h.Health().Service("web", "", true, nil)
		check(h.t, err)
		equal(h, "healthy instances", len(found), 1)
	})
}

func TestN12_AServiceOfTheAgent(t *testing.T) {
	each(t, func(h *harness) {
		check(h.t, h.Agent().ServiceRegister(&api.AgentServiceRegistration{
			ID: "web1", Name: "web", Tags: []string{"v1"}, Port: 80, Address: "192.0.2.7",
			Checks: api.AgentServiceChecks{{TTL: "1m"}, {TTL: "2m", Status: "passing"}},
		}))
		services, err := h.Agent().Services()
		check(h.t, err)
		web := services["web1"]
		if web == nil || web.Service != "web" || web.Port != 80 || len(web.Tags) != 1 {
			h.t.Fatalf("%+v", services)
		}
		found, _, err := h.Catalog().Service("web", "", nil)
		check(h.t, err)
		if len(found) != 1 || found[0].Node != h.db.Node() ||
			found[0].ServiceAddress != "192.0.2.7" {
			h.t.Fatalf("%+v", found)
		}
		checks, _, err := h.Health().Checks("web", nil)
		check(h.t, err)
		equal(h, "checks", len(checks), 2)
		equal(h, "health", checks.AggregatedStatus(), api.HealthCritical)
		for _, c := range checks {
			check(h.t, h.Agent().UpdateTTL(c.CheckID, "", "pass"))
		}
		healthy, _, err := h.Health().Service("web", "v1", true, nil)
		check(h.t, err)
		equal(h, "healthy instances", len(healthy), 1)
	})
}

// The official client takes a 404 for a service that is critical, so that the path has to be there.
func TestA13A14_TheHealthOfTheAgentsServices(t *testing.T) {
	each(t, func(h *harness) {
		check(h.t, h.Agent().ServiceRegister(&api.AgentServiceRegistration{
			ID: "web1", Name: "web", Check: &api.AgentServiceCheck{TTL: "1m", Status: "passing"},
		}))
		status, one, err := h.Agent().AgentHealthServiceByID("web1")
		check(h.t, err)
		equal(h, "health", status, api.HealthPassing)
		equal(h, "checks", len(one.Checks), 1)
		check(h.t, h.Agent().UpdateTTL("service:web1", "", "warn"))
		status, all, err := h.Agent().AgentHealthServiceByName("web")
		check(h.t, err)
		equal(h, "health", status, api.HealthWarning)
		equal(h, "service", all[0].Service.ID, "web1")
		status, one, err = h.Agent().AgentHealthServiceByID("web2")
		check(h.t, err)
		if status != api.HealthCritical || one != nil {
			h.t.Fatalf("%s %+v", status, one)
		}
		host, err := h.Agent().Host()
		check(h.t, err)
		if host["CollectionTime"] == nil {
			h.t.Fatalf("%+v", host)
		}
	})
}

// The official client watches a service by the hash. Without one it would ask without a pause.
func TestB4_AServiceOfTheAgentBlocksByItsHash(t *testing.T) {
	each(t, func(h *harness) {
		register := func(port int) {
			check(h.t, h.Agent().ServiceRegister(
				&api.AgentServiceRegistration{Name: "web", Port: port}))
		}
		register(1)
		web, _, err := h.Agent().Service("web", nil)
		check(h.t, err)
		waiting := call(func() int {
			changed, meta, err := h.Agent().Service("web",
				&api.QueryOptions{WaitHash: web.ContentHash, WaitTime: time.Hour})
			if err != nil || meta.LastContentHash != changed.ContentHash {
				return failed(h, errors.Join(err, errors.New("no new hash in the header")))
			}
			return changed.Port
		})
		h.waitForBegun("hash="+web.ContentHash, 1)
		h.advance(time.Second)
		select {
		case port := <-waiting:
			h.t.Fatalf("answered with port %d, and should wait", port)
		default:
		}
		register(2)
		equal(h, "port", receive(h, waiting), 2)
	})
}

// A client's definition of its check must not keep other clients from reading the list of checks.
func TestN1_ADefinitionThatNoClientCouldRead(t *testing.T) {
	each(t, func(h *harness) {
		h.external(api.HealthWarning)
		before, _, err := h.Health().State(api.HealthAny, nil)
		check(h.t, err)
		for _, definition := range []map[string]any{
			{"HTTP": 5}, {"Interval": []int{1}}, {"Interval": "soon"}, {"Header": "x"},
		} {
			_, err := h.Raw().Write("/v1/catalog/register", map[string]any{
				"Node": "foo", "Address": "192.0.2.1",
				"Check": map[string]any{"Name": "odd", "Definition": definition},
			}, nil, nil)
			h.refused(err, "400 (Bad request: Request decode failed: ")
		}
		_, err = h.Raw().Write("/v1/catalog/register", map[string]any{
			"Node": "foo", "Address": "192.0.2.1",
			"Check": map[string]any{"Name": "empty", "Definition": map[string]any{
				"Interval": "", "Timeout": nil, "HTTP": "http://127.0.0.1/",
			}},
		}, nil, nil)
		check(h.t, err)
		after, _, err := h.Health().State(api.HealthAny, nil)
		check(h.t, err)
		equal(h, "checks", len(after), len(before)+1)
	})
}

func TestA10_TheAgentCounts(t *testing.T) {
	each(t, func(h *harness) {
		h.ttlCheck("c", time.Minute)
		h.wantHeld(h.boundTo("a", "", "c"), "a")
		metrics, err := h.Agent().Metrics()
		check(h.t, err)
		var locks, grants bool
		for _, g := range metrics.Gauges {
			locks = locks || g.Name == "lockd.locks" && g.Value == 1
		}
		for _, c := range metrics.Counters {
			grants = grants || c.Name == "lockd.grants" && c.Count == 1 && c.Sum == 1
		}
		if !locks || !grants || metrics.Timestamp == "" || len(metrics.Samples) != 5 {
			h.t.Errorf("%+v", metrics)
		}
	})
}
