package consulapi

import (
	"encoding/json"
	"iter"
	"net/http"
	"slices"
	"strings"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

func (h *handler) catalogRoutes() map[string][]method {
	return map[string][]method{
		"catalog/register":    {{http.MethodPut, h.catalogRegister}},
		"catalog/deregister":  {{http.MethodPut, h.catalogDeregister}},
		"catalog/nodes":       {{http.MethodGet, h.catalogNodes}},
		"catalog/node/":       {{http.MethodGet, named("Missing node name", h.catalogNode)}},
		"catalog/services":    {{http.MethodGet, h.catalogServices}},
		"catalog/service/":    {{http.MethodGet, named("Missing service name", h.catalogService)}},
		"catalog/datacenters": {{http.MethodGet, h.catalogDatacenters}},
	}
}

func (h *handler) catalogRegister(r *request) (answer, error) {
	var body registration
	if err := h.decodeStrictly(r, &body); err != nil {
		return answer{}, err
	}
	if err := h.checkRegistration(&body); err != nil {
		return answer{}, err
	}
	err := h.db.Update(func(tx *lockd.Txn) error {
		if err := reserved(tx.Catalog(), body.Node, body.ID); err != nil && !body.SkipNodeUpdate {
			return mistake("failed inserting node: %v", err)
		}
		return body.apply(tx.Catalog(), h.putNode)
	})
	h.repair()
	return done(err, nil)
}

// deregistration is the body of a request to deregister a node, a service or a check (N4).
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
	if err := refusePlace(body.Namespace, body.Partition); err != nil {
		return answer{}, err
	}
	if err := checkDatacenter(body.Datacenter, h.opts.Datacenter); err != nil {
		return answer{}, err
	}
	if body.Node == "" {
		return answer{}, mistake("Must provide node")
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

// readCatalog answers a read of the catalog, which blocks until anything in the catalog changes.
func (h *handler) readCatalog(
	r *request, look func(state *catalog.Snapshot) any,
) (answer, error) {
	if err := r.refuseFilter(); err != nil {
		return answer{}, err
	}
	return h.read(r, lockd.CatalogScope(), func(state *lockd.Snapshot) answer {
		return answer{value: look(state.Catalog()), header: r.consistencyHeader()}
	})
}

// refuseFilter refuses a filter expression: the client would take the whole list for the rows that
// it asked for.
func (r *request) refuseFilter() error {
	if r.query.Get("filter") != "" {
		return badRequest("lockd has no filter expressions")
	}
	return nil
}

func (h *handler) catalogNodes(r *request) (answer, error) {
	return h.readCatalog(r, func(state *catalog.Snapshot) any {
		return listed(state.Nodes(), r.wantsNode, h.newNode)
	})
}

// wantsNode reports whether the node has all Meta that ?node-meta names, each as key:value. Of two
// values for one key the last counts.
func (r *request) wantsNode(n catalog.Node) bool {
	wanted := make(map[string]string)
	for _, pair := range r.query["node-meta"] {
		key, value, _ := strings.Cut(pair, ":")
		wanted[key] = value
	}
	return hasMeta(n.Meta, wanted)
}

// hasTags reports whether the service has all of the tags. Case does not matter.
func hasTags(s catalog.Service, tags []string) bool {
	for _, tag := range tags {
		if !slices.ContainsFunc(s.Tags, func(other string) bool { return sameName(tag, other) }) {
			return false
		}
	}
	return true
}

// hasMeta reports whether meta has every key of wanted, with the value that it has there.
func hasMeta(meta, wanted map[string]string) bool {
	for key, value := range wanted {
		if got, has := meta[key]; !has || got != value {
			return false
		}
	}
	return true
}

// instances yields the services that have the name and all of the tags, each with its node.
func instances(
	state *catalog.Snapshot, name string, tags []string,
) iter.Seq2[catalog.Node, catalog.Service] {
	return func(yield func(catalog.Node, catalog.Service) bool) {
		for s := range state.Services("") {
			if !sameName(s.Name, name) || !hasTags(s, tags) {
				continue
			}
			if n, _ := state.Node(s.Node); !yield(n, s) {
				return
			}
		}
	}
}

func (h *handler) catalogNode(r *request) (answer, error) {
	return h.readCatalog(r, func(state *catalog.Snapshot) any {
		n, exists := state.Node(r.rest)
		if !exists {
			n, exists = nodeByID(state, r.rest)
		}
		if !exists {
			return json.RawMessage("null")
		}
		return object{
			{"Node", h.newNode(n)}, {"Services", servicesByID(state, n.Name, newService)},
		}
	})
}

// nodeByID returns the node whose ID begins with the prefix, unless there are several. A prefix has
// two digits or more; dashes do not count.
func nodeByID(state *catalog.Snapshot, prefix string) (found catalog.Node, exists bool) {
	digits := func(id string) string { return strings.ReplaceAll(folded(id), "-", "") }
	wanted := digits(prefix)
	if len(wanted) < 2 {
		return catalog.Node{}, false
	}
	for n := range state.Nodes() {
		if !strings.HasPrefix(digits(n.ID), wanted) {
			continue
		}
		if exists {
			return catalog.Node{}, false
		}
		found, exists = n, true
	}
	return found, exists
}

// servicesByID yields the services of a node, each with its ID, in the order of the IDs.
func servicesByID[V any](
	state *catalog.Snapshot, node string, show func(catalog.Service) V,
) mapping[V] {
	return func(yield func(string, V) bool) {
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
	ServiceSocketPath        string // always empty
	ServiceEnableTagOverride bool
	ServiceProxy             struct{}
	ServiceConnect           struct{}
	CreateIndex              uint64
	ModifyIndex              uint64
}

func (h *handler) catalogService(r *request) (answer, error) {
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
		ServiceMeta: orEmpty(s.Meta), ServicePort: s.Port,
		CreateIndex: s.CreateIndex, ModifyIndex: s.ModifyIndex,
	}
}

func (h *handler) catalogDatacenters(*request) (answer, error) {
	return ok([]string{h.opts.Datacenter}), nil
}
