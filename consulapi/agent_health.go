package consulapi

import (
	"net/http"
	"strings"

	"github.com/lockd/lockd/catalog"
)

// maintained is the health of a service that has a check for maintenance, or whose node has one,
// whatever the other checks say.
const maintained = "maintenance"

// serviceHealth is a service of the agent with its checks, and the health that follows from these.
// The zero value is no service.
type serviceHealth struct {
	status  string
	service *service
	checks  list[check]
}

func (v serviceHealth) encode(e *encoder) {
	e.raw(`{"AggregatedStatus":`)
	e.value(v.status)
	e.raw(`,"Service":`)
	e.value(v.service)
	e.raw(`,"Checks":`)
	if v.service == nil {
		e.value(nullValue)
	} else {
		e.value(v.checks)
	}
	e.raw("}")
}

// agentsHealth shows a service of the agent with its checks and those of its node, but serfHealth,
// which is no check of the agent.
func agentsHealth(state *catalog.Snapshot, s catalog.Service) serviceHealth {
	serf, _ := state.Check(s.Node, serfHealth) // its ID may have another case
	ignored := []string{serf.ID}
	status := health(state, s, ignored).String()
	for c := range checksOf(state, s) {
		if isMaintenance(c.ID) {
			status = maintained
		}
	}
	shown := agentsService(s)
	return serviceHealth{status, &shown, newChecks(state, s, ignored)}
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

// healthAnswer answers with the value in JSON, or with the text if the client wants that.
func (r *request) healthAnswer(code int, text string, value any) (answer, error) {
	format := r.query.Get("format")
	if strings.HasPrefix(r.Header.Get("Accept"), "text/plain") || format == "text" {
		return answer{status: code, contentType: "text/plain", body: []byte(text)}, nil
	}
	return answer{status: code, value: value}, nil
}

func (h *handler) agentHealthByID(r *request) (answer, error) {
	state := h.db.Snapshot().Catalog()
	s, exists := state.Service(h.opts.Node, r.rest)
	if !exists {
		return r.healthAnswer(http.StatusNotFound, "ServiceId "+r.rest+" not found",
			serviceHealth{status: catalog.Critical.String()})
	}
	found := agentsHealth(state, s)
	return r.healthAnswer(healthCode(found.status), found.status, found)
}

// agentHealthByName answers with all services of the agent that have the name. The status is that
// of the worst.
func (h *handler) agentHealthByName(r *request) (answer, error) {
	state := h.db.Snapshot().Catalog()
	var found []serviceHealth
	code, text := 0, ""
	for s := range state.Services(h.opts.Node) {
		if !sameName(s.Name, r.rest) {
			continue
		}
		shown := agentsHealth(state, s)
		if worse := healthCode(shown.status); worse > code {
			code, text = worse, shown.status
		}
		found = append(found, shown)
	}
	if code == 0 {
		code, text = http.StatusNotFound, "ServiceName "+r.rest+" Not Found"
	}
	return r.healthAnswer(code, text, listOf(found...))
}
