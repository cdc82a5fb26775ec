package consulapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/lockd/lockd/catalog"
)

// maintained is the health of a service that has a check for maintenance, or whose node has one,
// whatever the other checks say.
const maintained = "maintenance"

// serviceHealth is a service of the agent with its checks, and the health that follows from these.
// service and checks are nil for no service.
type serviceHealth struct {
	status          string
	service, checks any
}

func (v serviceHealth) encode(e *encoder) {
	e.value(object{
		{"AggregatedStatus", v.status}, {"Service", v.service}, {"Checks", v.checks},
	})
}

// agentsHealth shows the services of the agent at the places, each with its own checks and the
// node's. It leaves out serfHealth, which is no check of the agent.
func (h *handler) agentsHealth(state *catalog.Snapshot, at []place) (found []serviceHealth) {
	serf, _ := state.Check(h.opts.Node, serfHealth) // its ID may have another case
	for c := range checkedOf(state, services(state, at), []string{serf.ID}) {
		status := c.health().String()
		if slices.ContainsFunc(slices.Concat(c.shared.ids, c.own.ids), isMaintenance) {
			status = maintained
		}
		found = append(found, serviceHealth{status, h.agentsService(c.service), c.checks()})
	}
	return found
}

// healthCode is the HTTP status that tells a client the health without the body (A13).
func healthCode(status string) int {
	switch status {
	case catalog.Passing.String():
		return http.StatusOK
	case catalog.Warning.String():
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// healthAnswer answers with the value in JSON, or with the text if the client wants that. A header
// has the text in either case.
func (r *request) healthAnswer(code int, text string, value any) (answer, error) {
	a := answer{status: code, header: http.Header{"X-Consul-Reason": {text}}, value: value}
	format := r.query.Get("format")
	if strings.HasPrefix(r.Header.Get("Accept"), "text/plain") || format == "text" {
		a.contentType, a.body, a.value = "text/plain", []byte(text), nil
	}
	return a, nil
}

func (h *handler) agentHealthByID(r *request) (answer, error) {
	state := h.db.Snapshot().Catalog()
	s, exists := state.Service(h.opts.Node, r.rest)
	if !exists {
		return r.healthAnswer(http.StatusNotFound, "ServiceId "+r.rest+" not found",
			serviceHealth{status: catalog.Critical.String()})
	}
	found := h.agentsHealth(state, []place{{s.Node, s.ID}})[0]
	return r.healthAnswer(healthCode(found.status), found.status, found)
}

// agentHealthByName answers with all services of the agent that have the name. The status is that
// of the worst.
func (h *handler) agentHealthByName(r *request) (answer, error) {
	state := h.db.Snapshot().Catalog()
	var named []place
	for s := range state.Services(h.opts.Node) {
		if sameName(s.Name, r.rest) {
			named = append(named, place{s.Node, s.ID})
		}
	}
	found := h.agentsHealth(state, named)
	code, text := 0, ""
	for _, shown := range found {
		if worse := healthCode(shown.status); worse > code {
			code, text = worse, shown.status
		}
	}
	if code == 0 {
		code, text = http.StatusNotFound, "ServiceName "+r.rest+" Not Found"
	}
	return r.healthAnswer(code, text, listOf(found...))
}
