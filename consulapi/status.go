package consulapi

import "net/http"

// leader is where the server of this process would be, if it had a cluster.
const leader = address + ":8300"

func (h *handler) statusRoutes() map[string][]method {
	return map[string][]method{
		"status/leader": {{http.MethodGet, h.statusLeader}},
		"status/peers":  {{http.MethodGet, h.statusPeers}},
	}
}

func (h *handler) statusLeader(*request) (answer, error) { return ok(leader), nil }

func (h *handler) statusPeers(*request) (answer, error) { return ok([]string{leader}), nil }
