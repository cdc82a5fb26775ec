package consulapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd/consulapi"
)

// The tests below play, step by step, what a client of the API sees. Each step is a request on the
// state that the step before left.

// shows fails the test unless the key's entry has these values, and returns the entry.
func (h *harness) shows(key, value, session string, lockIndex, flags uint64) kv {
	h.t.Helper()
	e := h.entry(key)
	want := fmt.Sprint(value, " ", session, " ", lockIndex, " ", flags)
	got := fmt.Sprint(string(e.Value), " ", e.Session, " ", e.LockIndex, " ", e.Flags)
	if got != want {
		h.t.Fatalf("%s is %s, not %s", key, got, want)
	}
	return e
}

// yes sends a PUT or DELETE that must be done, no sends one that must be refused.
func (h *harness) yes(target, body string) { h.t.Helper(); h.want(target, body, 200, "true") }
func (h *harness) no(target, body string)  { h.t.Helper(); h.want(target, body, 200, "false") }

func TestScript_K1K2K3K13K15K16K17K21K22_OneKeyAndItsLock(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "v1")
		first := h.shows("a", "v1", "", 0, 0)
		h.put("a", "v1")
		if e := h.entry("a"); e.ModifyIndex != first.ModifyIndex {
			t.Errorf("the same again went from index %d to %d", first.ModifyIndex, e.ModifyIndex)
		}
		h.yes("PUT /v1/kv/a?flags=42", "v1")
		if e := h.shows("a", "v1", "", 0, 42); e.ModifyIndex <= first.ModifyIndex ||
			e.CreateIndex != first.CreateIndex {
			t.Errorf("other flags made %+v of %+v", e, first)
		}
		s1, s2 := h.create(`{}`).ID, h.create(`{}`).ID
		h.yes("PUT /v1/kv/l?flags=7&acquire="+s1, "v")
		held := h.shows("l", "v", s1, 1, 7)
		if held.CreateIndex != held.ModifyIndex {
			t.Errorf("%+v", held)
		}
		h.yes("PUT /v1/kv/l?flags=7&acquire="+s1, "v")
		if e := h.entry("l"); e.ModifyIndex != held.ModifyIndex {
			t.Errorf("acquired again at index %d, not %d", e.ModifyIndex, held.ModifyIndex)
		}
		h.yes("PUT /v1/kv/l?acquire="+s1, "w")
		if e := h.shows("l", "w", s1, 1, 0); e.ModifyIndex <= held.ModifyIndex {
			t.Errorf("%+v after %+v", e, held)
		}
		h.no("PUT /v1/kv/l?acquire="+s2, "x")
		h.yes("PUT /v1/kv/l", "plain")
		h.shows("l", "plain", s1, 1, 0)
		h.no("PUT /v1/kv/l?release="+s2, "x")
		h.yes("PUT /v1/kv/l?flags=9&release="+s1, "rel")
		h.shows("l", "rel", "", 1, 9)
		if r := h.send("GET /v1/kv/l", ""); strings.Contains(r.body, "Session") {
			t.Errorf("a free key is shown as %s", r.body)
		}
		h.no("PUT /v1/kv/l?release="+s1, "rel")
		h.yes("PUT /v1/kv/l?flags=9&acquire="+s1, "again")
		h.shows("l", "again", s1, 2, 9)
		h.yes("PUT /v1/kv/l?release="+s1, "")
		h.shows("l", "", "", 2, 0)
		h.want("PUT /v1/kv/l?acquire=", "", 500, "raft apply failed: missing session")
	})
}

func TestScript_S31S32K34K37K38K39_EndsOfSessionsAndDelays(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, behavior := range []string{"release", "delete"} {
			s := h.create(`{"LockDelay":"2s","Behavior":"` + behavior + `"}`).ID
			other := h.create(`{}`).ID
			one, two := behavior+"/1", behavior+"/2"
			h.yes("PUT /v1/kv/"+one+"?acquire="+s, "v")
			h.yes("PUT /v1/kv/"+two+"?acquire="+s, "v")
			h.yes("PUT /v1/session/destroy/"+s, "")
			next := uint64(1)
			if behavior == "release" {
				e := h.shows(one, "v", "", 1, 0)
				if f := h.shows(two, "v", "", 1, 0); e.ModifyIndex != f.ModifyIndex {
					t.Errorf("%+v and %+v at two indexes", e, f)
				}
				h.yes("DELETE /v1/kv/"+two, "")
				next = 2
			}
			h.want("GET /v1/kv/"+two, "", 404, "")
			h.no("PUT /v1/kv/"+one+"?acquire="+other, "w")
			h.no("PUT /v1/kv/"+two+"?acquire="+other, "w")
			h.advance(2*time.Second - 1)
			h.no("PUT /v1/kv/"+one+"?acquire="+other, "w")
			h.advance(1)
			h.yes("PUT /v1/kv/"+one+"?acquire="+other, "w")
			h.shows(one, "w", other, next, 0)
			h.yes("PUT /v1/kv/"+two+"?acquire="+other, "w")
			h.shows(two, "w", other, 1, 0)
		}
		s, other := h.create(`{"LockDelay":"30s"}`).ID, h.create(`{}`).ID
		h.yes("PUT /v1/kv/l?acquire="+s, "")
		h.yes("PUT /v1/kv/l?release="+s, "")
		h.yes("PUT /v1/kv/l?acquire="+other, "")
		h.yes("DELETE /v1/kv/l", "")
		h.yes("PUT /v1/kv/l?acquire="+s, "")
		h.shows("l", "", s, 1, 0)
	})
}

func TestScript_I7B3B7B10K28K30_ReadsThatBlock(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("GET /v1/kv/?keys", "", 200, "[]")
		if r := h.want("GET /v1/kv/?recurse", "", 404, ""); r.index() != 1 {
			t.Errorf("nothing is at index %d", r.index())
		}
		h.put("p/1", "v")
		at := h.entry("p/1").ModifyIndex
		wait := h.blocked(fmt.Sprintf("GET /v1/kv/p/1?wait=1s&index=%d", at))
		h.advance(time.Second - 1)
		h.waits(wait)
		h.advance(time.Second/16 + 1)
		if r := h.answered(wait); r.code != 200 || r.index() != at {
			t.Errorf("%d at index %d", r.code, r.index())
		}
		wait = h.blocked(fmt.Sprintf("GET /v1/kv/p/?recurse&index=%d", at))
		h.put("p0", "v")
		h.put("p", "v")
		h.put("p/1", "v")
		h.waits(wait)
		h.put("p/2", "v")
		newest := h.entry("p/2").ModifyIndex
		if r := h.answered(wait); r.index() != newest {
			t.Errorf("at index %d, not %d", r.index(), newest)
		}
		wait = h.blocked(fmt.Sprintf("GET /v1/kv/p/2?index=%d", newest))
		h.yes("DELETE /v1/kv/p/2", "")
		deleted := h.answered(wait)
		if deleted.code != 404 || deleted.index() <= newest {
			t.Errorf("%d at index %d", deleted.code, deleted.index())
		}
		h.put("elsewhere", "v")
		if r := h.send("GET /v1/kv/p/?recurse", ""); r.index() != deleted.index() {
			t.Errorf("the list is at index %d, the delete was at %d", r.index(), deleted.index())
		}
		h.yes("DELETE /v1/kv/p/2?cas=5", "")
		h.no("DELETE /v1/kv/p/1?cas=0", "")
	})
}

func TestScript_S26N3_TTLsAndChecks(t *testing.T) {
	opts := &consulapi.Options{MinTTL: time.Second, GraceTTLs: 1}
	run(t, opts, func(h *harness) {
		quiet, renewed := h.create(`{"TTL":"1s"}`).ID, h.create(`{"TTL":"1s"}`).ID
		h.advance(1500 * time.Millisecond)
		if r := h.send("PUT /v1/session/renew/"+renewed, ""); r.code != 200 {
			t.Errorf("%d %s", r.code, r.body)
		}
		h.advance(500 * time.Millisecond)
		h.want("GET /v1/session/info/"+quiet, "", 200, "[]")
		h.advance(1500*time.Millisecond - 1)
		h.info(renewed)
		h.advance(1)
		h.want("GET /v1/session/info/"+renewed, "", 200, "[]")

		check := func(status string) {
			h.yes("PUT /v1/catalog/register", `{"Node":"local","SkipNodeUpdate":true,`+
				`"Check":{"CheckID":"c","Name":"c","Status":"`+status+`"}}`)
		}
		check("passing")
		s := h.create(`{"NodeChecks":["c"]}`).ID
		h.yes("PUT /v1/kv/l?acquire="+s, "v")
		check("warning")
		h.shows("l", "v", s, 1, 0)
		check("critical")
		key := h.shows("l", "v", "", 1, 0).ModifyIndex
		sessions := h.want("GET /v1/session/list", "", 200, "[]").index()
		checks := h.send("GET /v1/health/state/critical", "").index()
		if key != sessions || key != checks {
			t.Errorf("key, sessions and checks changed at %d, %d and %d", key, sessions, checks)
		}
	})
}
