package consulapi_test

import (
	"strings"
	"testing"

	"github.com/lockd/lockd/consulapi"
)

// Ensure that what a snapshot has comes back, without the sessions, and that the node of this
// process is there afterwards whatever the snapshot has.
func TestSnapshot_SaveAndRestore(t *testing.T) {
	var saved string
	run(t, nil, func(h *harness) {
		h.put("a", "v")
		s := h.create("").ID
		h.want("PUT /v1/kv/l?acquire="+s, "", 200, "true")
		r := h.send("GET /v1/snapshot", "")
		if saved = r.body; r.code != 200 || r.header.Get("X-Consul-LastContact") != "0" ||
			r.header.Get("Content-Type") != "application/octet-stream" {
			t.Fatalf("%d %v", r.code, r.header)
		}
	})
	run(t, nil, func(h *harness) {
		h.put("b", "v")
		s := h.create("").ID
		r := h.sendAs(h.t.Context(), "PUT /v1/snapshot", chunked(saved))
		if r.code != 200 || r.body != "" {
			t.Fatalf("%d %s", r.code, r.body)
		}
		h.want("GET /v1/kv/?keys", "", 200, `["a","l"]`)
		if e := h.entry("l"); e.Session != "" {
			t.Errorf("%+v", e)
		}
		h.want("PUT /v1/session/renew/"+s, "", 404, "Session id '"+s+"' not found")
		h.create("") // is bound to the node and its check
	})
}

// Ensure that a snapshot that is damaged, none, or too large changes nothing.
func TestSnapshot_Refused(t *testing.T) {
	run(t, &consulapi.Options{MaxSnapshotSize: 1 << 20}, func(h *harness) {
		h.put("a", "v")
		saved := h.send("GET /v1/snapshot", "").body
		h.put("a", "w")
		for name, body := range map[string]string{
			"empty": "", "none": "x", "cut": saved[:len(saved)-1],
			"damaged": strings.Replace(saved, "v", "x", 1), "longer": saved + "x",
		} {
			r := h.send("PUT /v1/snapshot", body)
			if r.code != 400 {
				t.Errorf("%s: %d %s", name, r.code, r.body)
			}
		}
		h.put("large", strings.Repeat("x", 500<<10))
		h.put("larger", strings.Repeat("x", 512<<10))
		h.put("largest", strings.Repeat("x", 512<<10))
		saved = h.send("GET /v1/snapshot", "").body
		if r := h.send("PUT /v1/snapshot", saved); r.code != 413 {
			t.Errorf("too large: %d %s", r.code, r.body)
		}
		if e := h.entry("a"); string(e.Value) != "w" {
			t.Errorf("%+v", e)
		}
	})
}
