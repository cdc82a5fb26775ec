package consulapi

import (
	"iter"
	"net/http"
	"slices"
	"strconv"

	"github.com/lockd/lockd/catalog"
)

func (h *handler) healthRoutes() map[string][]method {
	return map[string][]method{
		"health/node/":    {{http.MethodGet, named("Missing node name", h.healthNode)}},
		"health/checks/":  {{http.MethodGet, named("Missing service name", h.healthChecks)}},
		"health/service/": {{http.MethodGet, named("Missing service name", h.healthService)}},
		"health/state/":   {{http.MethodGet, named("Missing check state", h.healthState)}},
	}
}

// checks answers with the wanted checks. of is zero for a check that belongs to no service.
func (h *handler) checks(
	r *request, wanted func(n catalog.Node, c catalog.Check, of catalog.Service) bool,
) (answer, error) {
	return h.readCatalog(r, func(state *catalog.Snapshot) any {
		return list[check](func(yield func(check) bool) {
			for c := range state.Checks("") {
				of, _ := state.Service(c.Node, c.ServiceID)
				n, _ := state.Node(c.Node)
				if wanted(n, c, of) && !yield(newCheck(c, of)) {
					return
				}
			}
		})
	})
}

func (h *handler) healthNode(r *request) (answer, error) {
	return h.checks(r, func(_ catalog.Node, c catalog.Check, _ catalog.Service) bool {
		return sameName(c.Node, r.rest)
	})
}

func (h *handler) healthChecks(r *request) (answer, error) {
	return h.checks(r, func(n catalog.Node, c catalog.Check, of catalog.Service) bool {
		return c.ServiceID != "" && sameName(of.Name, r.rest) && r.wantsNode(n)
	})
}

func (h *handler) healthState(r *request) (answer, error) {
	return h.checks(r, func(n catalog.Node, c catalog.Check, _ catalog.Service) bool {
		return (r.rest == "any" || r.rest == c.Status.String()) && r.wantsNode(n)
	})
}

// instance is a service with its node and the checks of both.
type instance struct {
	Node    node
	Service service
	Checks  list[check]
}

func (v instance) encode(e *encoder) {
	e.raw(`{"Node":`)
	e.value(v.Node)
	e.raw(`,"Service":`)
	e.value(v.Service)
	e.raw(`,"Checks":`)
	e.value(v.Checks)
	e.raw("}")
}

func (h *handler) healthService(r *request) (answer, error) {
	worst := catalog.Critical
	if text := r.query.Get("passing"); r.has("passing") {
		only, err := strconv.ParseBool(text)
		if err != nil && text != "" {
			return answer{}, badRequest("Invalid value for ?passing")
		}
		if only || text == "" {
			worst = catalog.Passing
		}
	}
	return h.readCatalog(r, func(state *catalog.Snapshot) any {
		return list[instance](func(yield func(instance) bool) {
			for n, s := range instances(state, r.rest, r.query["tag"]) {
				if health(state, s, nil) < worst || !r.wantsNode(n) {
					continue
				}
				if !yield(h.newInstance(state, n, s, nil)) {
					return
				}
			}
		})
	})
}

// newInstance shows a service and its node, with their checks except those with ignored IDs.
func (h *handler) newInstance(
	state *catalog.Snapshot, n catalog.Node, s catalog.Service, ignored []string,
) instance {
	return instance{h.newNode(n), newService(s), newChecks(state, s, ignored)}
}

// newChecks shows the checks that count for a service, except those with ignored IDs.
func newChecks(state *catalog.Snapshot, s catalog.Service, ignored []string) list[check] {
	return func(yield func(check) bool) {
		for c, of := range checksOf(state, s) {
			if !slices.Contains(ignored, c.ID) && !yield(newCheck(c, of)) {
				return
			}
		}
	}
}

// health returns the worst status of a service: of the checks of its node and of its own, except
// those whose IDs are ignored.
func health(state *catalog.Snapshot, s catalog.Service, ignored []string) catalog.Status {
	worst := catalog.Passing
	for c := range checksOf(state, s) {
		if !slices.Contains(ignored, c.ID) {
			worst = min(worst, c.Status)
		}
	}
	return worst
}

// checksOf yields the checks that count for a service: first its node's, with no service, then its
// own, with s.
func checksOf(
	state *catalog.Snapshot, s catalog.Service,
) iter.Seq2[catalog.Check, catalog.Service] {
	return func(yield func(catalog.Check, catalog.Service) bool) {
		for c := range state.Checks(s.Node) {
			if c.ServiceID == "" && !yield(c, catalog.Service{}) {
				return
			}
		}
		for c := range state.Checks(s.Node) {
			if c.ServiceID != "" && sameName(c.ServiceID, s.ID) && !yield(c, s) {
				return
			}
		}
	}
}
