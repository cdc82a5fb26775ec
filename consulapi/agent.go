package consulapi

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// The agent is the node of this process. It has no state of its own: its services and checks are
// those that the catalog has of its node, but for serfHealth, and the database lets its checks
// lapse (catalog.Check.TTL). So a second handler on the same database, or the next process, goes on
// where this one is.

// version is that of Consul whose API this is; its clients look at it.
const version = "1.11.0+lockd"

// serfPort is where the node would gossip, if it had others to gossip with.
const serfPort = 8301

func (h *handler) agentRoutes() map[string][]method {
	return map[string][]method{
		"agent/self":        {{http.MethodGet, h.agentSelf}},
		"agent/members":     {{http.MethodGet, h.agentMembers}},
		"agent/checks":      {{http.MethodGet, h.agentChecks}},
		"agent/services":    {{http.MethodGet, h.agentServices}},
		"agent/maintenance": {{http.MethodPut, h.agentMaintenance}},
		"agent/metrics":     {{http.MethodGet, h.agentMetrics}},

		"agent/check/register":    {{http.MethodPut, h.checkRegister}},
		"agent/check/deregister/": {{http.MethodPut, h.checkDeregister}},
		"agent/check/pass/":       {{http.MethodPut, h.checkPass}},
		"agent/check/warn/":       {{http.MethodPut, h.checkWarn}},
		"agent/check/fail/":       {{http.MethodPut, h.checkFail}},
		"agent/check/update/":     {{http.MethodPut, h.checkUpdate}},

		"agent/service/":             {{http.MethodGet, h.serviceInfo}},
		"agent/service/register":     {{http.MethodPut, h.serviceRegister}},
		"agent/service/deregister/":  {{http.MethodPut, h.serviceDeregister}},
		"agent/service/maintenance/": {{http.MethodPut, h.serviceMaintenance}},
	}
}

// update changes what the agent has. If another call has taken its node out of the catalog, that is
// put back first: it is still there (N16).
func (h *handler) update(fn func(tx *catalog.Txn) error) error {
	update := func(tx *lockd.Txn) error { return fn(tx.Catalog()) }
	err := h.db.Update(update)
	if errors.Is(err, catalog.ErrNoNode) {
		if err := h.register(); err != nil {
			return err
		}
		err = h.db.Update(update)
	}
	return err
}

// member is the node of this process as one that gossips.
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
	if !exists { // another call has removed it, and it will be put back
		n = catalog.Node{Name: h.opts.Node, ID: h.opts.NodeID, Address: address}
	}
	return n
}

// agentSelf answers with what clients ask an agent for (A9). Every member is an object or null.
func (h *handler) agentSelf(*request) (answer, error) {
	n := h.self()
	type object map[string]any
	return ok(struct {
		Config      object
		DebugConfig object
		Coord       any
		Member      member
		Stats       object
		Meta        map[string]string
		XDS         any `json:"xDS"`
	}{
		Config: object{
			"Datacenter": h.opts.Datacenter, "PrimaryDatacenter": h.opts.Datacenter,
			"NodeName": n.Name, "NodeID": n.ID, "Revision": "", "Server": true,
			"Version": version,
		},
		DebugConfig: object{},
		Member:      h.member(n),
		Stats:       object{},
		Meta:        visible(n.Meta),
	}), nil
}

func (h *handler) agentMembers(*request) (answer, error) {
	return ok([]member{h.member(h.self())}), nil
}

// nodeMaintenance is the ID of the check that says that the node is not to be used; that which says
// so of a service has the service's ID behind serviceMaintenance.
const (
	nodeMaintenance    = "_node_maintenance"
	serviceMaintenance = "_service_maintenance:"
)

// maintenance reads what a request for maintenance wants.
func (r *request) maintenance() (enable bool, err error) {
	if !r.has("enable") {
		return false, badRequest("Missing value for enable")
	}
	text := r.query.Get("enable")
	if enable, err = strconv.ParseBool(text); err != nil {
		return false, badRequest("Invalid value for enable: %q", text)
	}
	return enable, nil
}

// maintain puts or removes a check that says that something is not to be used. It ends no session,
// since none is bound to it (N10, N11).
func (h *handler) maintain(r *request, enable bool, c catalog.Check) (answer, error) {
	err := h.update(func(tx *catalog.Txn) error {
		if c.ServiceID != "" {
			if _, exists := tx.Service(c.Node, c.ServiceID); !exists {
				return unknownService(c.ServiceID)
			}
		}
		if !enable {
			_, err := tx.DeleteCheck(c.Node, c.ID)
			return err
		}
		if _, exists := tx.Check(c.Node, c.ID); exists { // the first reason counts
			return nil
		}
		if c.Notes = r.query.Get("reason"); c.Notes == "" {
			kind := "node"
			if c.ServiceID != "" {
				kind = "service"
			}
			c.Notes = "Maintenance mode is enabled for this " + kind +
				", but no reason was provided. This is a default message."
		}
		return tx.PutCheck(c)
	})
	return answer{}, err
}

func (h *handler) agentMaintenance(r *request) (answer, error) {
	enable, err := r.maintenance()
	if err != nil {
		return answer{}, err
	}
	return h.maintain(r, enable, catalog.Check{
		Node: h.opts.Node, ID: nodeMaintenance, Name: "Node Maintenance Mode",
	})
}
