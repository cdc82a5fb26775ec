package consulapi

import (
	"net/http"
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
		checks := []check{}
		for c := range state.Checks("") {
			of, _ := state.Service(c.Node, c.ServiceID)
			if n, _ := state.Node(c.Node); wanted(n, c, of) {
				checks = append(checks, newCheck(c, of))
			}
		}
		return checks
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

// instance is a service with its node and what is checked of both.
type instance struct {
	Node    node
	Service service
	Checks  []check
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
		found := []instance{}
		for n, s := range instances(state, r.rest, r.query["tag"]) {
			if health, checks := healthOf(state, s); health >= worst && r.wantsNode(n) {
				found = append(found, instance{h.newNode(n), newService(s), checks})
			}
		}
		return found
	})
}

// healthOf returns the worst status of a service, of what is checked of its node and of it, and
// those checks, in this order.
func healthOf(state *lockd.Snapshot, s lockd.Service) (worst lockd.Status, checks []check) {
	worst, checks = lockd.Passing, []check{}
	var own []check
	for c := range state.Checks(s.Node) {
		switch {
		case c.ServiceID == "":
			checks = append(checks, newCheck(c, lockd.Service{}))
		case sameName(c.ServiceID, s.ID):
			own = append(own, newCheck(c, s))
		default:
			continue
		}
		worst = min(worst, c.Status)
	}
	return worst, append(checks, own...)
}
