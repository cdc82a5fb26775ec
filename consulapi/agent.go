package consulapi

import (
	"net/http"
	"runtime"
	"time"

	"github.com/lockd/lockd/catalog"
)

// The agent is the node of this process. It has no state of its own: its services and checks are
// those of its node in the catalog, except serfHealth, and the database lets its checks lapse
// (catalog.Check.TTL). So a second handler on the same database, or the next process, continues
// with the same services and checks.

// version is the version of Consul whose API is served. Clients look at it.
const version = "1.11.0+lockd"

// These are where the node would gossip, if it had others to gossip with.
const (
	serfPort    = 8301
	serfPortWAN = 8302 // with servers of other datacenters
)

func (h *handler) agentRoutes() map[string][]method {
	return map[string][]method{
		"agent/self":        {{http.MethodGet, h.agentSelf}},
		"agent/members":     {{http.MethodGet, h.agentMembers}},
		"agent/host":        {{http.MethodGet, h.agentHost}},
		"agent/checks":      {{http.MethodGet, h.agentChecks}},
		"agent/services":    {{http.MethodGet, h.agentServices}},
		"agent/maintenance": {{http.MethodPut, h.agentMaintenance}},
		"agent/metrics":     {{http.MethodGet, h.agentMetrics}},

		"agent/check/register":    {{http.MethodPut, h.checkRegister}},
		"agent/check/deregister/": {{http.MethodPut, h.checkDeregister}},
		"agent/check/pass/":       {{http.MethodPut, h.checkSet(catalog.Passing)}},
		"agent/check/warn/":       {{http.MethodPut, h.checkSet(catalog.Warning)}},
		"agent/check/fail/":       {{http.MethodPut, h.checkSet(catalog.Critical)}},
		"agent/check/update/":     {{http.MethodPut, h.checkUpdate}},

		"agent/health/service/id/": {
			{http.MethodGet, named("Missing serviceID", h.agentHealthByID)},
		},
		"agent/health/service/name/": {
			{http.MethodGet, named("Missing service Name", h.agentHealthByName)},
		},

		"agent/service/":            {{http.MethodGet, h.serviceInfo}},
		"agent/service/register":    {{http.MethodPut, h.serviceRegister}},
		"agent/service/deregister/": {{http.MethodPut, h.serviceDeregister}},
		"agent/service/maintenance/": {
			{http.MethodPut, named("Missing service ID", h.serviceMaintenance)},
		},
	}
}

// member describes the node of this process as a member of a gossip pool.
type member struct {
	Name   string
	Addr   string
	Port   int
	Tags   map[string]string
	Status int

	ProtocolMin, ProtocolMax, ProtocolCur int
	DelegateMin, DelegateMax, DelegateCur int
}

// alive is the status of a member that is there.
const alive = 1

func (h *handler) member(n catalog.Node) member {
	return member{
		Name: n.Name, Addr: n.Address, Port: serfPort, Status: alive,
		Tags: map[string]string{
			"build": version, "dc": h.opts.Datacenter, "id": n.ID, "role": "consul", "port": "8300",
		},
		ProtocolMin: 1, ProtocolMax: 5, ProtocolCur: 2,
		DelegateMin: 2, DelegateMax: 5, DelegateCur: 4,
	}
}

// self returns the node of this process, as the catalog has it.
func (h *handler) self() catalog.Node {
	n, exists := h.db.Snapshot().Catalog().Node(h.opts.Node)
	if !exists { // it was removed, and will be put back
		n = catalog.Node{Name: h.opts.Node, ID: h.opts.NodeID, Address: address}
	}
	return n
}

// agentSelf answers with what clients ask an agent for (A9). Every member is an object or null.
func (h *handler) agentSelf(*request) (answer, error) {
	n := h.self()
	return ok(object{
		{"Config", map[string]any{
			"Datacenter": h.opts.Datacenter, "PrimaryDatacenter": h.opts.Datacenter,
			"NodeName": n.Name, "NodeID": n.ID, "Revision": "", "Server": true,
			"Version": version,
		}},
		{"DebugConfig", object{}}, {"Coord", nil}, {"Member", h.member(n)},
		{"Stats", object{}}, {"Meta", visible(n.Meta)}, {"xDS", nil},
	}), nil
}

// agentMembers answers with the node of this process. With ?wan, which asks for the servers of all
// datacenters, the name of the node ends with the datacenter.
func (h *handler) agentMembers(r *request) (answer, error) {
	m := h.member(h.self())
	if r.query.Get("wan") != "" {
		m.Name, m.Port = m.Name+"."+h.opts.Datacenter, serfPortWAN
	}
	return ok([]member{m}), nil
}

// agentHost answers with what clients ask for to see that an agent is there (A14). Of the host's
// memory, processors and disks, which Consul's agent measures, it tells nothing.
func (h *handler) agentHost(*request) (answer, error) {
	return ok(object{
		{"Memory", nil}, {"CPU", nil},
		{"Host", object{{"hostname", h.opts.Node}, {"os", runtime.GOOS}}},
		{"Disk", nil}, {"CollectionTime", time.Now().UnixNano()}, {"Errors", nil},
	}), nil
}
