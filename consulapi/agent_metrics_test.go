package consulapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Ensure that the agent reports what the database counts, in Consul's form.
func TestAgent_A10_Metrics(t *testing.T) {
	run(t, nil, func(h *harness) {
		s := h.session(nil)
		_, err := s.TryLock("held", nil)
		h.must(err)
		for range 2 {
			_, err = s.TryLock("k", shared)
			h.must(err)
		}
		h.put("k", "v")
		brief, err := s.TryLock("brief", nil)
		h.must(err)
		h.advance(3 * time.Second)
		h.must(brief.Unlock())
		h.must(h.session(nil).Close())
		h.must(h.db.EndSession(h.session(nil).ID()))
		waiting := h.blocked(fmt.Sprintf("GET /v1/kv/k?wait=1m&index=%d",
			h.entry("k").ModifyIndex))
		type sample struct {
			Name                string
			Count               int
			Sum, Min, Max, Mean float64
			Labels              map[string]string
		}
		m := decode[struct {
			Timestamp string
			Gauges    []struct {
				Name  string
				Value float32
			}
			Points            []any
			Counters, Samples []sample
		}](h, h.send("GET /v1/agent/metrics", ""))
		got := make(map[string]float64)
		for _, g := range m.Gauges {
			got[g.Name] = float64(g.Value)
		}
		for _, c := range m.Counters {
			got[c.Name+"/"+c.Labels["cause"]] = float64(c.Count)
			each := float64(min(c.Count, 1)) // of what is counted
			if c.Sum != float64(c.Count) || c.Min != each || c.Max != each || c.Mean != each ||
				c.Labels == nil {
				t.Errorf("%+v", c)
			}
		}
		for name, want := range map[string]float64{
			"lockd.up": 1, "lockd.keys": 3, "lockd.sessions": 1, "lockd.locks": 1,
			"lockd.shares":  2,
			"lockd.waiters": 0, "lockd.watchers": 1, "lockd.queries.blocked": 1,
			"lockd.file.size": float64(h.db.Stats().FileSize),
			"lockd.index":     float64(h.db.Stats().Index), "lockd.grants/": 4,
			"lockd.waits.given_up/":       0,
			"lockd.sessions.ended/closed": 1, "lockd.sessions.ended/destroyed": 1,
			"lockd.sessions.ended/expired": 0, "lockd.locks.ended/unlocked": 1,
		} {
			if value, is := got[name]; !is || value != want {
				t.Errorf("%s is %v, %v, not %v", name, value, is, want)
			}
		}
		var samples []string
		for _, s := range m.Samples {
			samples = append(samples, s.Name)
			if s.Name == "lockd.lock.holds" && (s.Count != 1 || s.Sum != 3000 || s.Mean != 3000) {
				t.Errorf("%+v", s)
			}
		}
		if !strings.HasSuffix(m.Timestamp, " +0000 UTC") || m.Points == nil ||
			!slices.Equal(samples, []string{"lockd.commits", "lockd.lock.waits",
				"lockd.lock.holds", "lockd.slot.waits", "lockd.slot.holds"}) {
			t.Errorf("%+v", m)
		}
		h.put("k", "w")
		h.answered(waiting)
		r := h.send("GET /v1/agent/metrics?format=prometheus", "")
		if r.code != 415 || !strings.Contains(r.body, "/metrics") {
			t.Errorf("%d %s", r.code, r.body)
		}
		h.must(h.db.Close())
		if r := h.send("GET /v1/agent/metrics", ""); !strings.Contains(r.body,
			`{"Name":"lockd.up","Value":0,"Labels":{}}`) {
			t.Errorf("after Close: %s", r.body)
		}
	})
}
