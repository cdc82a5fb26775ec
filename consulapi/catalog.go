package consulapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

func (h *handler) catalogRoutes() map[string][]method {
	return map[string][]method{
		"catalog/register":    {{http.MethodPut, h.catalogRegister}},
		"catalog/deregister":  {{http.MethodPut, h.catalogDeregister}},
		"catalog/nodes":       {{http.MethodGet, h.catalogNodes}},
		"catalog/node/":       {{http.MethodGet, h.catalogNode}},
		"catalog/services":    {{http.MethodGet, h.catalogServices}},
		"catalog/service/":    {{http.MethodGet, h.catalogService}},
		"catalog/datacenters": {{http.MethodGet, h.catalogDatacenters}},
	}
}

// registration is the body of a request to register a node, a service and checks (N1).
type registration struct {
	ID, Node, Address string
	NodeMeta          map[string]string
	Service           *sentService
	Check             *sentCheck
	Checks            []sentCheck
	TaggedAddresses   map[string]string
	SkipNodeUpdate    bool

	elsewhere
}

// sentService is a service as it is registered.
type sentService struct {
	ID, Service, Address string
	Port                 int
	Tags                 []string
	Meta                 map[string]string
	TaggedAddresses      map[string]serviceAddress

	ModifyIndex uint64 // which no client can choose
	unkept
}

// sentCheck is a check as it is registered.
type sentCheck struct {
	Node, CheckID, Name, Status, Notes, Output, ServiceID string

	Definition  map[string]any
	ModifyIndex uint64 // which no client can choose
	unkept
}

// elsewhere is where the request is for, and by whom.
type elsewhere struct {
	Datacenter                            string
	Namespace, Partition, Token, PeerName json.RawMessage
	Locality, WriteRequest                json.RawMessage
}

// decodeStrictly decodes the body, in which every member has to be one that is known.
func (h *handler) decodeStrictly(r *request, body any) error {
	text, err := r.readBody(h.opts.MaxValueSize, "")
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(body); err != nil {
		return badRequest("Request decode failed: %v", plainly(err))
	}
	return nil
}

// decode decodes the body, in which members that are unknown mean nothing.
func (h *handler) decode(r *request, body any) error {
	text, err := r.readBody(h.opts.MaxValueSize, "")
	if err != nil {
		return err
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(body); err != nil {
		return badRequest("Request decode failed: %v", plainly(err))
	}
	return nil
}

// mistake is a mistake in a request that Consul answers with 500 (X30).
func mistake(format string, args ...any) error {
	return refuse(http.StatusInternalServerError, format, args...)
}

func (h *handler) catalogRegister(r *request) (answer, error) {
	var body registration
	if err := h.decodeStrictly(r, &body); err != nil {
		return answer{}, err
	}
	if err := h.checkRegistration(&body); err != nil {
		return answer{}, err
	}
	err := h.db.Update(func(tx *lockd.Txn) error { return body.apply(tx.Catalog()) })
	h.repair()
	return done(err, nil)
}

func (h *handler) checkRegistration(body *registration) error {
	switch {
	case body.Node == "":
		return mistake("Must provide node")
	case body.Address == "" && !body.SkipNodeUpdate:
		return mistake("Must provide address if SkipNodeUpdate is not set")
	case body.ID != "" && uuid.Validate(body.ID) != nil:
		return mistake("Bad node ID: %v", uuid.Validate(body.ID))
	case body.Service != nil && body.Service.Service == "" && body.Service.ID != "":
		return mistake("Must provide service name with ID")
	case body.Service != nil && body.Service.Service == "":
		return mistake("Must provide service name")
	case body.Service != nil && isAnyAddress(body.Service.Address):
		return mistake("Invalid service address")
	}
	for _, c := range body.checks() {
		if _, err := parseStatus(c.Status); err != nil {
			return badRequest("%v", err)
		}
		if c.Node != "" && !sameName(c.Node, body.Node) {
			return mistake("Node '%s' for check '%s' doesn't match register request node '%s'",
				c.Node, cmp.Or(c.CheckID, c.Name), body.Node)
		}
	}
	return h.checkDatacenter(body.Datacenter)
}

// checkDatacenter refuses what is for another datacenter than this one.
func (h *handler) checkDatacenter(name string) error {
	if name != "" && name != h.opts.Datacenter {
		return mistake("No path to datacenter")
	}
	return nil
}

// checks returns all checks of the registration.
func (b *registration) checks() []sentCheck {
	if b.Check == nil {
		return b.Checks
	}
	return append(slices.Clone(b.Checks), *b.Check)
}

// apply does all of the registration.
func (b *registration) apply(tx *catalog.Txn) error {
	n, exists := tx.Node(b.Node)
	if !exists || !b.SkipNodeUpdate {
		n.Name, n.Address = b.Node, b.Address
		n.Meta = hide(b.NodeMeta, taggedKey, b.TaggedAddresses)
		n.ID = cmp.Or(b.ID, n.ID)
		if err := tx.PutNode(n); err != nil {
			return err
		}
	}
	if s := b.Service; s != nil {
		if err := tx.PutService(catalog.Service{
			Node: n.Name, ID: cmp.Or(s.ID, s.Service), Name: s.Service, Address: s.Address,
			Port: s.Port, Tags: s.Tags, Meta: hide(s.Meta, taggedKey, s.TaggedAddresses),
		}); err != nil {
			return err
		}
	}
	for _, c := range b.checks() {
		if err := c.put(tx, n.Name); err != nil {
			return err
		}
	}
	return nil
}

// put registers a check, of the node if it names none itself (N2).
func (c *sentCheck) put(tx *catalog.Txn, node string) error {
	id := cmp.Or(c.CheckID, c.Name)
	if id == "" {
		return mistake("Must provide check ID or name")
	}
	next, _ := tx.Check(cmp.Or(c.Node, node), id) // its TTL, and what else it has, stays
	next.Node, next.ID, next.Name = cmp.Or(c.Node, node), id, c.Name
	next.Notes, next.Output, next.ServiceID = c.Notes, c.Output, c.ServiceID
	var err error
	if next.Status, err = parseStatus(c.Status); err != nil {
		return err
	}
	next.Meta = hide(next.Meta, definitionKey, c.Definition)
	err = tx.PutCheck(next)
	switch {
	case errors.Is(err, catalog.ErrNoNode):
		return reword(err, "Missing node registration")
	case errors.Is(err, catalog.ErrNoService):
		return reword(err, "Unknown service ID '%s' for check ID '%s'", c.ServiceID, id)
	}
	return err
}

// repairDelay is how long the node of this process stays without a check that passes, or gone
// from the catalog, after a client has made it so (N16).
const repairDelay = time.Minute

// repair has the node of this process, and its check, put right later, if they are not as they
// should be.
func (h *handler) repair() {
	check, _ := h.db.Snapshot().Catalog().Check(h.opts.Node, serfHealth)
	if check.Status == catalog.Passing || !h.repairing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		// An empty scope never changes: this waits for the delay, or the end of the database.
		_, _, _ = h.db.Wait(context.Background(), lockd.Scope{}, 1, repairDelay)
		h.repairing.Store(false)
		if err := h.register(); errors.Is(err, lockd.ErrCommit) {
			h.repair()
		}
	}()
}

// deregistration is the body of a request to take a node, a service or a check away (N4).
type deregistration struct {
	Node, ServiceID, CheckID string

	elsewhere
	Address json.RawMessage // an old member
}

func (h *handler) catalogDeregister(r *request) (answer, error) {
	var body deregistration
	if err := h.decodeStrictly(r, &body); err != nil {
		return answer{}, err
	}
	if body.Node == "" {
		return answer{}, mistake("Must provide node")
	}
	if err := h.checkDatacenter(body.Datacenter); err != nil {
		return answer{}, err
	}
	err := h.db.Update(func(txn *lockd.Txn) (err error) {
		tx := txn.Catalog()
		switch {
		case body.ServiceID != "":
			_, err = tx.DeleteService(body.Node, body.ServiceID)
		case body.CheckID != "":
			_, err = tx.DeleteCheck(body.Node, body.CheckID)
		default:
			_, err = tx.DeleteNode(body.Node)
		}
		return err
	})
	h.repair()
	return done(err, nil)
}

// readCatalog answers a read of the catalog, which blocks until anything in it changes.
func (h *handler) readCatalog(
	r *request, look func(state *catalog.Snapshot) any,
) (answer, error) {
	if r.query.Get("filter") != "" {
		return answer{}, badRequest("lockd has no filter expressions")
	}
	return h.read(r, lockd.CatalogScope(), func(state *lockd.Snapshot) answer {
		return answer{value: look(state.Catalog()), header: r.consistencyHeader()}
	})
}

func (h *handler) catalogNodes(r *request) (answer, error) {
	return h.readCatalog(r, func(state *catalog.Snapshot) any {
		return list[node](func(yield func(node) bool) {
			for n := range state.Nodes() {
				if r.wantsNode(n) && !yield(h.newNode(n)) {
					return
				}
			}
		})
	})
}

// wantsNode reports whether the node has all of ?node-meta, each key:value.
func (r *request) wantsNode(n catalog.Node) bool {
	for _, pair := range r.query["node-meta"] {
		key, value, _ := strings.Cut(pair, ":")
		if got, has := n.Meta[key]; !has || got != value {
			return false
		}
	}
	return true
}

// hasTags reports whether the service has all of the tags, in any case.
func hasTags(s catalog.Service, tags []string) bool {
	for _, tag := range tags {
		if !slices.ContainsFunc(s.Tags, func(other string) bool { return sameName(tag, other) }) {
			return false
		}
	}
	return true
}

// instances yields the services of that name, each with its node, that have all of the tags.
func instances(
	state *catalog.Snapshot, name string, tags []string,
) iter.Seq2[catalog.Node, catalog.Service] {
	return func(yield func(catalog.Node, catalog.Service) bool) {
		for s := range state.Services("") {
			if !sameName(s.Name, name) || !hasTags(s, tags) {
				continue
			}
			if n, exists := state.Node(s.Node); exists && !yield(n, s) {
				return
			}
		}
	}
}

// nullValue is null as an answer.
var nullValue = json.RawMessage("null")

func (h *handler) catalogNode(r *request) (answer, error) {
	if r.rest == "" {
		return answer{}, badRequest("Missing node name")
	}
	return h.readCatalog(r, func(state *catalog.Snapshot) any {
		n, exists := state.Node(r.rest)
		if !exists {
			return nullValue
		}
		return nodeServices{h.newNode(n), servicesByID(state, n.Name, newService)}
	})
}

// nodeServices is a node with its services.
type nodeServices struct {
	node     node
	services mapping[service]
}

func (v nodeServices) encode(e *encoder) {
	e.raw(`{"Node":`)
	e.value(v.node)
	e.raw(`,"Services":`)
	e.value(v.services)
	e.raw("}")
}

// servicesByID yields the services of a node, each with its ID, in the order of those.
func servicesByID(
	state *catalog.Snapshot, node string, show func(catalog.Service) service,
) mapping[service] {
	return func(yield func(string, service) bool) {
		for id := range inOrder(state.Services(node),
			func(s catalog.Service) string { return s.ID },
		) {
			s, _ := state.Service(node, id)
			if !yield(id, show(s)) {
				return
			}
		}
	}
}

func (h *handler) catalogServices(r *request) (answer, error) {
	return h.readCatalog(r, func(state *catalog.Snapshot) any {
		services := func(yield func(catalog.Service) bool) {
			for s := range state.Services("") {
				if n, _ := state.Node(s.Node); r.wantsNode(n) && !yield(s) {
					return
				}
			}
		}
		return mapping[[]string](collated(services,
			func(s catalog.Service) string { return s.Name },
			func(tags []string, s catalog.Service) []string {
				tags = append(tags, s.Tags...)
				slices.Sort(tags)
				return append([]string{}, slices.Compact(tags)...)
			},
		))
	})
}

// catalogInstance is a service with its node, in one object.
type catalogInstance struct {
	ID                       string
	Node                     string
	Address                  string
	Datacenter               string
	TaggedAddresses          map[string]string
	NodeMeta                 map[string]string
	ServiceKind              string
	ServiceID                string
	ServiceName              string
	ServiceTags              []string
	ServiceAddress           string
	ServiceTaggedAddresses   map[string]serviceAddress `json:",omitempty"`
	ServiceWeights           weights
	ServiceMeta              map[string]string
	ServicePort              int
	ServiceEnableTagOverride bool
	ServiceProxy             struct{}
	ServiceConnect           struct{}
	CreateIndex              uint64
	ModifyIndex              uint64
}

func (h *handler) catalogService(r *request) (answer, error) {
	if r.rest == "" {
		return answer{}, badRequest("Missing service name")
	}
	return h.readCatalog(r, func(state *catalog.Snapshot) any {
		return list[catalogInstance](func(yield func(catalogInstance) bool) {
			for n, s := range instances(state, r.rest, r.query["tag"]) {
				if r.wantsNode(n) && !yield(newCatalogInstance(h.newNode(n), newService(s))) {
					return
				}
			}
		})
	})
}

func newCatalogInstance(n node, s service) catalogInstance {
	return catalogInstance{
		ID: n.ID, Node: n.Node, Address: n.Address, Datacenter: n.Datacenter,
		TaggedAddresses: n.TaggedAddresses, NodeMeta: n.Meta, ServiceID: s.ID,
		ServiceName: s.Service, ServiceTags: s.Tags, ServiceAddress: s.Address,
		ServiceTaggedAddresses: s.TaggedAddresses, ServiceWeights: s.Weights,
		ServiceMeta: object(s.Meta), ServicePort: s.Port,
		CreateIndex: s.CreateIndex, ModifyIndex: s.ModifyIndex,
	}
}

func (h *handler) catalogDatacenters(*request) (answer, error) {
	return ok([]string{h.opts.Datacenter}), nil
}
