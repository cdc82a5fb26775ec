package consulapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Ensure that a client can tell the health of the agent's services from the status of the answer:
// the official client takes 404 for a service that is not there, and critical.
func TestAgent_A13_HealthOfServices(t *testing.T) {
	run(t, nil, func(h *harness) {
		const id, name = "GET /v1/agent/health/service/id/", "GET /v1/agent/health/service/name/"
		wants := func(path string, code int, text string) {
			t.Helper()
			for _, r := range []reply{
				h.want(path+"?format=text", "", code, text), h.send(path+"?format=json", ""),
			} {
				if reason := r.header.Get("X-Consul-Reason"); r.code != code || reason != text {
					t.Errorf("%s: %d %s, reason %q", path, r.code, r.body, reason)
				}
			}
		}
		for _, s := range []string{"w1", "w2"} {
			h.want("PUT /v1/agent/service/register", `{"ID":"`+s+`","Name":"web","Port":80,
				"Check":{"CheckID":"`+s+`","TTL":"1m","Status":"passing"}}`, 200, "")
		}
		h.want("PUT /v1/agent/service/register", `{"Name":"bare"}`, 200, "")
		wants(id+"W1", 200, "passing")
		wants(id+"bare", 200, "passing")
		wants(name+"Web", 200, "passing")
		h.want("PUT /v1/agent/check/warn/w2", "", 200, "")
		wants(id+"w1", 200, "passing")
		wants(id+"w2", 429, "warning")
		wants(name+"web", 429, "warning")
		h.want("PUT /v1/agent/check/fail/w1", "", 200, "")
		wants(id+"w1", 503, "critical")
		wants(name+"web", 503, "critical")
		h.want("PUT /v1/agent/service/maintenance/w2?enable=true", "", 200, "")
		wants(id+"w2", 503, "maintenance")
		h.want("PUT /v1/agent/service/maintenance/w2?enable=false", "", 200, "")
		h.want("PUT /v1/agent/check/register", `{"Name":"disk","TTL":"1m"}`, 200, "")
		wants(id+"w2", 503, "critical") // the node's checks count, except serfHealth

		wants(id+"no", 404, "ServiceId no not found")
		wants(name+"no", 404, "ServiceName no Not Found")
		h.want(name+"no", "", 404, "[]")
		h.want(id+"no", "", 404, `{"AggregatedStatus":"critical","Service":null,"Checks":null}`)
		h.want(id, "", 400, "Bad request: Missing serviceID")
		h.want(name, "", 400, "Bad request: Missing service Name")

		type health struct {
			AggregatedStatus string
			Service          struct{ ID, Service string }
			Checks           []checkInfo
		}
		r := h.send(name+"web", "")
		r.code = 200
		found := decode[[]health](h, r)
		if len(found) != 2 || found[1].Service.ID != "w2" || len(found[1].Checks) != 2 ||
			found[1].Checks[0].CheckID != "disk" || found[1].AggregatedStatus != "critical" {
			t.Errorf("%s", r.body)
		}
		w, in := httptest.NewRecorder(), httptest.NewRequest("GET", strings.Fields(id)[1]+"w1", nil)
		in.Header = http.Header{"Accept": {"text/plain"}}
		if h.ServeHTTP(w, in); w.Body.String() != "critical" {
			t.Errorf("%s", w.Body)
		}
	})
}

// Ensure that clients which ask for the host first, to see that they have reached an agent, go on.
func TestAgent_A14_TellsOfItsHost(t *testing.T) {
	run(t, nil, func(h *harness) {
		host := decode[map[string]any](h, h.send("GET /v1/agent/host", ""))
		if on, _ := host["Host"].(map[string]any); on["hostname"] != "local" ||
			host["CollectionTime"] == nil {
			t.Errorf("%v", host)
		}
	})
}
