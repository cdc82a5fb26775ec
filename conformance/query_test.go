package conformance_test

import (
	"testing"

	"github.com/hashicorp/consul/api"
)

// query makes a prepared query.
func (h *harness) query(definition api.PreparedQueryDefinition) string {
	h.t.Helper()
	id, _, err := h.PreparedQuery().Create(&definition, nil)
	check(h.t, err)
	return id
}

// queries returns the number of prepared queries.
func (h *harness) queries() int {
	h.t.Helper()
	all, _, err := h.PreparedQuery().List(nil)
	check(h.t, err)
	return len(all)
}

func TestQuery_IsMadeReadChangedAndDeleted(t *testing.T) {
	each(t, func(h *harness) {
		definition := api.PreparedQueryDefinition{
			Name: "q", Service: api.ServiceQuery{Service: "db", Tags: []string{"v1"}},
		}
		definition.ID = h.query(definition)
		got, _, err := h.PreparedQuery().Get(definition.ID, nil)
		check(h.t, err)
		if len(got) != 1 || got[0].Name != "q" || got[0].Service.Tags[0] != "v1" {
			h.t.Fatalf("%+v", got)
		}
		definition.Service.Service = "web"
		_, err = h.PreparedQuery().Update(&definition, nil)
		check(h.t, err)
		all, _, err := h.PreparedQuery().List(nil)
		check(h.t, err)
		if len(all) != 1 || all[0].ID != definition.ID || all[0].Service.Service != "web" {
			h.t.Fatalf("%+v", all)
		}
		_, err = h.PreparedQuery().Delete(definition.ID, nil)
		check(h.t, err)
		equal(h, "queries", h.queries(), 0)
		_, _, err = h.PreparedQuery().Execute(definition.ID, nil)
		h.refused(err, "404")
	})
}

func TestQuery_FindsTheHealthyInstances(t *testing.T) {
	each(t, func(h *harness) {
		h.external(api.HealthPassing)
		id := h.query(api.PreparedQueryDefinition{
			Name: "q", Service: api.ServiceQuery{Service: "db"},
			DNS: api.QueryDNSOptions{TTL: "10s"},
		})
		strict := h.query(api.PreparedQueryDefinition{
			Name: "strict", Service: api.ServiceQuery{Service: "db", OnlyPassing: true},
		})
		found := func(name string) int {
			h.t.Helper()
			answer, _, err := h.PreparedQuery().Execute(name, nil)
			check(h.t, err)
			equal(h, "service", answer.Service+" "+answer.Datacenter, "db dc1")
			for _, n := range answer.Nodes {
				equal(h, "instance", n.Node.Node+" "+n.Service.ID, "foo db1")
			}
			return len(answer.Nodes)
		}
		for _, test := range []struct {
			status       string
			any, passing int
		}{
			{api.HealthPassing, 1, 1},
			{api.HealthWarning, 1, 0},
			{api.HealthCritical, 0, 0},
		} {
			h.setCheck("foo:db", "db1", test.status)
			equal(h, "by name, "+test.status, found("q"), test.any)
			equal(h, "by ID, "+test.status, found(id), test.any)
			equal(h, "only passing, "+test.status, found(strict), test.passing)
		}
	})
}

func TestS31_AQueryDiesWithItsSession(t *testing.T) {
	each(t, func(h *harness) {
		session := h.session(nil)
		h.query(api.PreparedQueryDefinition{
			Session: session, Service: api.ServiceQuery{Service: "db"},
		})
		stays := h.query(api.PreparedQueryDefinition{
			Name: "stays", Service: api.ServiceQuery{Service: "db"},
		})
		equal(h, "queries", h.queries(), 2)
		h.destroy(session)
		all, _, err := h.PreparedQuery().List(nil)
		check(h.t, err)
		if len(all) != 1 || all[0].ID != stays {
			h.t.Fatalf("%+v", all)
		}
		_, _, err = h.PreparedQuery().Create(&api.PreparedQueryDefinition{
			Session: session, Service: api.ServiceQuery{Service: "db"},
		}, nil)
		h.refused(err, "invalid session")
	})
}

func TestQuery_NeedsANameOrASession(t *testing.T) {
	each(t, func(h *harness) {
		_, _, err := h.PreparedQuery().Create(&api.PreparedQueryDefinition{
			Service: api.ServiceQuery{Service: "db"},
		}, nil)
		h.refused(err, "500 (Invalid prepared query: Must be bound to a session)")
		equal(h, "queries", h.queries(), 0)
	})
}
