package consulapi

import (
	"iter"
	"net/http"
	"slices"
	"strconv"

	"github.com/lockd/lockd"
)

func (h *handler) healthRoutes() map[string][]method {
	return map[string][]method{
		"health/node/":    {{http.MethodGet, h.healthNode}},
		"health/checks/":  {{http.MethodGet, h.healthChecks}},
		"health/service/": {{http.MethodGet, h.healthService}},
		"health/state/":   {{http.MethodGet, h.healthState}},
	}
}

// checks answers with the checks that are wanted, each of a node, and of a service or of none.
func (h *handler) checks(
	r *request, wanted func(n lockd.Node, c lockd.Check, of lockd.Service) bool,
) (answer, error) {
	return h.readCatalog(r, func(state *lockd.Snapshot) any {
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
	if r.rest == "" {
		return answer{}, badRequest("Missing node name")
	}
	return h.checks(r, func(_ lockd.Node, c lockd.Check, _ lockd.Service) bool {
		return sameName(c.Node, r.rest)
	})
}

func (h *handler) healthChecks(r *request) (answer, error) {
	if r.rest == "" {
		return answer{}, badRequest("Missing service name")
	}
	return h.checks(r, func(n lockd.Node, c lockd.Check, of lockd.Service) bool {
		return c.ServiceID != "" && sameName(of.Name, r.rest) && r.wantsNode(n)
	})
}

func (h *handler) healthState(r *request) (answer, error) {
	if r.rest == "" {
		return answer{}, badRequest("Missing check state")
	}
	return h.checks(r, func(n lockd.Node, c lockd.Check, _ lockd.Service) bool {
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
	if r.rest == "" {
		return answer{}, badRequest("Missing service name")
	}
	worst := lockd.Critical
	if text := r.query.Get("passing"); r.has("passing") {
		only, err := strconv.ParseBool(text)
		if err != nil && text != "" {
			return answer{}, badRequest("Invalid value for ?passing")
		}
		if only || text == "" {
			worst = lockd.Passing
		}
	}
	return h.readCatalog(r, func(state *lockd.Snapshot) any {
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

// newInstance shows a service of a node, with those of their checks whose IDs are not ignored.
func (h *handler) newInstance(
	state *lockd.Snapshot, n lockd.Node, s lockd.Service, ignored []string,
) instance {
	return instance{h.newNode(n), newService(s), func(yield func(check) bool) {
		for c, of := range checksOf(state, s) {
			if !slices.Contains(ignored, c.ID) && !yield(newCheck(c, of)) {
				return
			}
		}
	}}
}

// health returns the worst status of a service: of the checks of its node and of its own, but for
// those whose IDs are ignored.
func health(state *lockd.Snapshot, s lockd.Service, ignored []string) lockd.Status {
	worst := lockd.Passing
	for c := range checksOf(state, s) {
		if !slices.Contains(ignored, c.ID) {
			worst = min(worst, c.Status)
		}
	}
	return worst
}

// checksOf yields the checks that count for a service: those of its node, then its own, each with
// the service that it is of.
func checksOf(state *lockd.Snapshot, s lockd.Service) iter.Seq2[lockd.Check, lockd.Service] {
	return func(yield func(lockd.Check, lockd.Service) bool) {
		for c := range state.Checks(s.Node) {
			if c.ServiceID == "" && !yield(c, lockd.Service{}) {
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
