package consulapi

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// agentService is a service as a client asks the agent to keep it (N12).
type agentService struct {
	ID, Name, Address string
	Port              int
	Tags              []string
	Meta              map[string]string
	TaggedAddresses   map[string]serviceAddress
	Check             *agentCheck
	Checks            []agentCheck

	// TaggedAddresses, as files of the agent spell it
	Tagged map[string]serviceAddress `json:"tagged_addresses"`
}

// checks returns the checks of the service, with defaults filled in, Check before Checks. It drops
// empty checks.
func (s *agentService) checks() ([]agentCheck, error) {
	var checks []agentCheck
	if s.Check != nil {
		checks = append(checks, *s.Check)
	}
	checks = append(checks, s.Checks...)
	checks = slices.DeleteFunc(checks, func(c agentCheck) bool {
		return reflect.ValueOf(c).IsZero()
	})
	for i := range checks {
		c := &checks[i]
		c.ServiceID = cmp.Or(s.ID, s.Name)
		id := "service:" + c.ServiceID
		if len(checks) > 1 {
			id = fmt.Sprintf("%s:%d", id, i+1)
		}
		c.ID = cmp.Or(c.ID, c.CheckID, id)
		c.Name = cmp.Or(c.Name, fmt.Sprintf("Service '%s' check", s.Name))
		if err := c.valid(); err != nil {
			return nil, err
		}
		if _, err := parseStatus(c.Status); err != nil {
			return nil, badRequest("Status for checks must 'passing', 'warning', 'critical'")
		}
	}
	return checks, nil
}

// tagged returns the tagged addresses that were sent. If the address of the service is an IP
// address, tagged adds it under lan_ and wan_ where none was sent.
func (s *agentService) tagged() map[string]serviceAddress {
	sent := s.TaggedAddresses
	if len(sent) == 0 {
		sent = s.Tagged
	}
	ip := net.ParseIP(s.Address)
	if ip == nil {
		return sent
	}
	kind := "ipv6"
	if ip.To4() != nil {
		kind = "ipv4"
	}
	own := serviceAddress{s.Address, s.Port}
	tagged := map[string]serviceAddress{"lan_" + kind: own, "wan_" + kind: own}
	maps.Copy(tagged, sent)
	return tagged
}

func (h *handler) serviceRegister(r *request) (answer, error) {
	var body agentService
	if err := h.decode(r, &body); err != nil {
		return answer{}, err
	}
	if body.Name == "" {
		return answer{}, badRequest("Missing service name")
	}
	if isAnyAddress(body.Address) {
		return answer{}, badRequest("Invalid service address")
	}
	checks, err := body.checks()
	if err != nil {
		return answer{}, err
	}
	id := cmp.Or(body.ID, body.Name)
	replaced := h.replacedChecks(r, id, checks)
	err = h.update(func(tx *catalog.Txn) error {
		if err := tx.PutService(catalog.Service{
			Node: h.opts.Node, ID: id, Name: body.Name, Address: body.Address,
			Port: body.Port, Tags: body.Tags,
			Meta: hide(body.Meta, taggedKey, body.tagged()),
		}); err != nil {
			return err
		}
		for _, c := range checks {
			if err := c.put(tx, h.opts.Node); err != nil {
				return err
			}
		}
		for _, check := range replaced {
			if c, _ := tx.Check(h.opts.Node, check); !sameName(c.ServiceID, id) {
				continue // it was deleted, or given to another service, meanwhile
			}
			if _, err := tx.DeleteCheck(h.opts.Node, check); err != nil {
				return err
			}
		}
		return nil
	})
	h.repair()
	return answer{}, err
}

// replacedChecks returns the IDs of the service's checks that are not in named, if the request
// wants the checks in named in their place. It runs before the transaction, which cannot list
// checks: a check that is put in between stays, like one that is put right after.
func (h *handler) replacedChecks(
	r *request, service string, named []agentCheck,
) (ids []string) {
	const parameter = "replace-existing-checks"
	text := r.query.Get(parameter)
	if !r.has(parameter) || text != "" && text != "true" {
		return nil
	}
	for c := range h.db.Snapshot().Catalog().Checks(h.opts.Node) {
		if sameName(c.ServiceID, service) &&
			!slices.ContainsFunc(named, func(n agentCheck) bool { return sameName(n.id(), c.ID) }) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

func unknownService(id string) error {
	return refuse(http.StatusNotFound,
		"Unknown service ID %q. Ensure that the service ID is passed, not the service name.", id)
}

func (h *handler) serviceDeregister(r *request) (answer, error) {
	err := h.db.Update(func(tx *lockd.Txn) error {
		deleted, err := tx.Catalog().DeleteService(h.opts.Node, r.rest)
		if err == nil && !deleted {
			err = unknownService(r.rest)
		}
		return err
	})
	h.repair() // a client may have given serfHealth to the service
	return answer{}, err
}

// serviceInfo blocks by a hash of the service, not by an index. If the request names the hash that
// the service has now, serviceInfo waits until anything in the catalog changes.
func (h *handler) serviceInfo(r *request) (answer, error) {
	state := h.db.Snapshot()
	shown, exists := h.hashedService(state, r.rest)
	if hash := r.query.Get("hash"); exists && hash == shown.ContentHash {
		var err error
		r.index = state.IndexOf(lockd.CatalogScope())
		if state, _, err = h.await(r, lockd.CatalogScope()); err != nil {
			return answer{}, err
		}
		shown, exists = h.hashedService(state, r.rest)
	}
	if !exists {
		return answer{}, refuse(http.StatusNotFound, "unknown service ID: %s", r.rest)
	}
	a := ok(shown)
	a.header = http.Header{"X-Consul-Contenthash": {shown.ContentHash}}
	return a, nil
}

// agentsService is a service as the agent shows it: without indexes, which only the catalog shows.
type agentsService struct {
	ID                string
	Service           string
	Tags              []string
	Meta              map[string]string
	Port              int
	Address           string
	TaggedAddresses   map[string]serviceAddress `json:",omitempty"`
	Weights           weights
	EnableTagOverride bool
	ContentHash       string `json:",omitempty"` // of all the rest, where it is shown alone
	Datacenter        string
}

func (h *handler) agentsService(s catalog.Service) agentsService {
	shown := newService(s)
	return agentsService{
		ID: shown.ID, Service: shown.Service, Tags: shown.Tags, Meta: orEmpty(shown.Meta),
		Port: shown.Port, Address: shown.Address, TaggedAddresses: shown.TaggedAddresses,
		Weights: shown.Weights, Datacenter: h.opts.Datacenter,
	}
}

func (h *handler) hashedService(state *lockd.Snapshot, id string) (agentsService, bool) {
	s, exists := state.Catalog().Service(h.opts.Node, id)
	shown := h.agentsService(s)
	hash := fnv.New64a()
	_, _ = hash.Write(marshal(shown)) // never fails
	shown.ContentHash = fmt.Sprintf("%016x", hash.Sum64())
	return shown, exists
}

func (h *handler) agentServices(r *request) (answer, error) {
	if err := r.refuseFilter(); err != nil {
		return answer{}, err
	}
	return ok(servicesByID(h.db.Snapshot().Catalog(), h.opts.Node, h.agentsService)), nil
}
