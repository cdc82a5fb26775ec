package consulapi

import (
	"net/http"
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
		return sameName(of.Name, r.rest) && r.wantsNode(n)
	})
}

func (h *handler) healthState(r *request) (answer, error) {
	return h.checks(r, func(n catalog.Node, c catalog.Check, _ catalog.Service) bool {
		return (r.rest == "any" || sameName(r.rest, c.Status.String())) && r.wantsNode(n)
	})
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
	wanted := func(c checked) bool { return c.health() >= worst && r.wantsNode(c.node) }
	return h.readCatalog(r, func(state *catalog.Snapshot) any {
		services := checkedOf(state, instances(state, r.rest, r.query["tag"]), nil)
		return listed(services, wanted, h.newInstance)
	})
}

// newInstance shows a service with its node and the checks of both.
func (h *handler) newInstance(c checked) object {
	return object{
		{"Node", h.newNode(c.node)}, {"Service", newService(c.service)}, {"Checks", c.checks()},
	}
}
