package consulapi_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockd/lockd/consulapi"
)

// at returns the target of a read that waits for a change after the index.
func at(target string, index uint64) string { return fmt.Sprintf("%s&index=%d", target, index) }

func TestBlocking_B1_BadParameters(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "v")
		for query, text := range map[string]string{
			"index=abc": "Invalid index", "index=-1": "Invalid index",
			"wait=10": "Invalid wait time", "wait=abc": "Invalid wait time",
			"wait=1d&index=1": "Invalid wait time",
		} {
			h.want("GET /v1/kv/a?"+query, "", 400, text)
			h.want("PUT /v1/kv/new?"+query, "", 400, text)
			h.want("DELETE /v1/kv/a?"+query, "", 400, text)
		}
		h.want("GET /v1/kv/a?index=&wait=&raw", "", 200, "v")
		h.want("GET /v1/kv/new", "", 404, "")
	})
}

func TestBlocking_B2_NoIndexDoesNotWait(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("GET /v1/kv/a?wait=10s", "", 404, "")
		h.want("GET /v1/kv/a?wait=10s&index=0", "", 404, "")
	})
}

// Ensure that a wait lasts as long as it should, and up to a sixteenth longer.
func TestBlocking_B3_HowLong(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "v")
		index := h.entry("a").ModifyIndex
		for query, wait := range map[string]time.Duration{
			"wait=250ms": 250 * time.Millisecond, "wait=1s": time.Second, "wait=1ns": 1,
			"wait=0": 5 * time.Minute, "wait=-1s": 5 * time.Minute, "x": 5 * time.Minute,
			"wait=11m": 10 * time.Minute, "wait=600s": 10 * time.Minute,
		} {
			replies := h.blocked(at("GET /v1/kv/a?raw&"+query, index))
			if wait > 1 {
				h.advance(wait - 1)
			}
			h.waits(replies)
			h.advance(wait/16 + 1)
			if r := h.answered(replies); r.code != 200 || r.body != "v" || r.index() != index {
				t.Errorf("%s: %d %s at %d", query, r.code, r.body, r.index())
			}
		}
	})
}

// Ensure that queries that began to wait together do not all end together.
func TestBlocking_B3_WaitsAreSpread(t *testing.T) {
	run(t, nil, func(h *harness) {
		var waits []<-chan reply
		for range 32 {
			waits = append(waits, h.blocked("GET /v1/kv/a?wait=16m&index=1"))
		}
		h.advance(10*time.Minute + time.Second)
		ended := 0
		for _, replies := range waits {
			ended += len(replies)
		}
		if ended == len(waits) {
			t.Error("all have ended within a second")
		}
		h.advance(10 * time.Minute / 16)
		for _, replies := range waits {
			h.answered(replies)
		}
	})
}

func TestBlocking_B4B5B6_OneKey(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("foo/test", "v")
		index := h.entry("foo/test").ModifyIndex
		if r := h.send(at("GET /v1/kv/foo/test?raw", index-1), ""); r.body != "v" { // B5
			t.Errorf("%d %s", r.code, r.body)
		}
		replies := h.blocked(at("GET /v1/kv/foo/test?raw", index))
		h.put("foo/test2", "v")
		h.put("foo/", "v")
		h.put("foo/test", "v") // nothing new
		h.waits(replies)
		h.put("foo/test", "w")
		if r := h.answered(replies); r.body != "w" || r.index() != h.entry("foo/test").ModifyIndex {
			t.Errorf("%d %s at %d", r.code, r.body, r.index())
		}
	})
}

func TestBlocking_B7_Deleted(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "v")
		replies := h.blocked(at("GET /v1/kv/a?raw", h.entry("a").ModifyIndex))
		h.want("DELETE /v1/kv/a", "", 200, "true")
		deletion := h.db.Snapshot().Index()
		if r := h.answered(replies); r.code != 404 || r.index() != deletion {
			t.Errorf("%d at %d, not 404 at %d", r.code, r.index(), deletion)
		}
	})
}

// Ensure that a query of an absent key sleeps through all changes elsewhere.
func TestBlocking_B8B9_AbsentKey(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("other", "v")
		index := h.send("GET /v1/kv/a", "").index()
		replies := h.blocked(at("GET /v1/kv/a?raw&wait=10s", index))
		for i := range 3 {
			h.put("other", fmt.Sprint(i))
			h.put("a/b", fmt.Sprint(i))
		}
		h.waits(replies)
		if again := h.send("GET /v1/kv/a", ""); again.index() != index {
			t.Errorf("index of an absent key went from %d to %d", index, again.index())
		}
		h.put("a", "v")
		if r := h.answered(replies); r.code != 200 || r.body != "v" {
			t.Errorf("%d %s", r.code, r.body)
		}
	})
}

// Ensure that the deletion of a tree around an absent key does not end a wait for the key.
func TestBlocking_B8_AbsentAgain(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "v")
		h.want("DELETE /v1/kv/a", "", 200, "true")
		index := h.send("GET /v1/kv/a", "").index()
		replies := h.blocked(at("GET /v1/kv/a?wait=10s", index))
		h.put("a/below", "v")
		h.want("DELETE /v1/kv/a?recurse", "", 200, "true") // touches a, which stays absent
		h.waits(replies)
		touched := h.send("GET /v1/kv/a", "").index()
		if touched <= index {
			t.Fatalf("index is %d, was %d: nothing was touched", touched, index)
		}
		h.advance(11 * time.Second)
		if r := h.answered(replies); r.code != 404 || r.index() != touched {
			t.Errorf("%d at %d, not 404 at %d", r.code, r.index(), touched)
		}
	})
}

func TestBlocking_B10B11_Prefix(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("pp/a", "v")
		for _, query := range []string{"recurse", "keys", "keys&separator=/"} {
			index := h.send("GET /v1/kv/pp/?"+query, "").index()
			replies := h.blocked(at("GET /v1/kv/pp/?"+query, index))
			empty := h.blocked(at("GET /v1/kv/none/?"+query,
				h.send("GET /v1/kv/none/?"+query, "").index()))
			h.put("pp0", query)
			h.put("pp", query)
			h.put("none0", query)
			h.waits(replies)
			h.waits(empty)
			h.put("pp/a", query)
			if r := h.answered(replies); r.code != 200 || r.index() <= index {
				t.Errorf("%s: %d at %d", query, r.code, r.index())
			}
			h.put("none/x", query)
			if r := h.answered(empty); r.code != 200 {
				t.Errorf("%s: %d at %d", query, r.code, r.index())
			}
			h.want("DELETE /v1/kv/none/x", "", 200, "true")
			index = h.send("GET /v1/kv/none/?recurse", "").index()
			if r := h.send(at("GET /v1/kv/none/?recurse", index-1), ""); r.code != 404 {
				t.Errorf("%s: %d", query, r.code)
			}
			h.want("DELETE /v1/kv/?recurse", "", 200, "true")
			h.put("pp/a", "v")
		}
	})
}

func TestBlocking_B12_AllAreWokenAndSeeTheNewest(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "v")
		target := at("GET /v1/kv/a?raw", h.entry("a").ModifyIndex)
		var waiting []<-chan reply
		for range 20 {
			waiting = append(waiting, h.blocked(target))
		}
		h.put("a", "w")
		for _, replies := range waiting {
			if r := h.answered(replies); r.body != "w" {
				t.Errorf("%d %s", r.code, r.body)
			}
		}
	})
}

func TestBlocking_B14_Consistency(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "v")
		for _, query := range []string{
			"stale", "consistent=false", "leader", "cached&max_stale=1s",
		} {
			h.want("GET /v1/kv/a?raw&"+query, "", 200, "v")
		}
		h.want("GET /v1/kv/a?stale&consistent=", "", 400,
			"Cannot specify ?stale with ?consistent, conflicting semantics.")
		h.want("GET /v1/kv/a?stale&consistent&wait=x", "", 400, // which is told first
			"Cannot specify ?stale with ?consistent, conflicting semantics.")
		h.want("GET /v1/kv/a?max_stale=5", "", 400, `Invalid max_stale value "5"`)
		h.want("GET /v1/kv/a?max_stale=1s&consistent", "", 400,
			"Cannot specify ?stale with ?consistent, conflicting semantics.")
		h.want("GET /v1/kv/a?raw&max_stale=0s&consistent", "", 200, "v")
		h.want("GET /v1/kv/a?cached&consistent", "", 400,
			"Cannot specify ?cached with ?consistent, conflicting semantics.")
	})
}

func TestBlocking_X15_IndexAheadOfTheDatabase(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "v")
		r := h.answered(h.blocked("GET /v1/kv/a?raw&index=9999999"))
		if r.body != "v" || r.index() != h.entry("a").ModifyIndex {
			t.Errorf("%d %s at %d", r.code, r.body, r.index())
		}
		if r := h.answered(h.blocked("GET /v1/kv/none?index=9999999")); r.code != 404 {
			t.Errorf("%d %s", r.code, r.body)
		}
	})
}

// Ensure that a query that waits when the database is closed ends with an error, and so is not
// repeated at once.
func TestBlocking_G12_Close(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "v")
		for _, key := range []string{"a", "none"} {
			defer func(replies <-chan reply) {
				r := h.answered(replies)
				if r.code != 500 || r.body != "lockd: database closed by its owner" {
					t.Errorf("%s: %d %s", key, r.code, r.body)
				}
			}(h.blocked(at("GET /v1/kv/"+key+"?raw", h.entry("a").ModifyIndex)))
		}
		h.must(h.db.Close())
	})
}

// Ensure that a client that goes away frees its wait, and its place among the queries that wait.
func TestBlocking_ClientGoesAway(t *testing.T) {
	run(t, &consulapi.Options{MaxBlocked: 1}, func(h *harness) {
		h.put("a", "v")
		target := at("GET /v1/kv/a?raw", h.entry("a").ModifyIndex)
		for range 3 {
			ctx, cancel := context.WithCancel(h.t.Context())
			gone := make(chan reply, 1)
			go func() { gone <- h.sendAs(ctx, target, nil) }()
			h.settle()
			another := h.blocked(target)
			h.want("GET /v1/kv/a?raw&index=1000000", "", 200, "v") // it need not wait (B5)
			h.advance(1100 * time.Millisecond)
			if r := h.answered(another); r.code != 200 || r.body != "v" {
				t.Errorf("%d %s", r.code, r.body)
			}
			cancel()
			if r := <-gone; r.code != 500 || r.body != "Query given up: context canceled" {
				t.Errorf("%d %s", r.code, r.body)
			}
		}
		replies := h.blocked(target)
		h.advance(1100 * time.Millisecond)
		h.waits(replies)
		h.put("a", "w")
		h.answered(replies)
	})
}

// Ensure that the queries of others do not end the lock of a client that watches its key: beyond
// the limit a query waits for a second, and is answered with what there is, or with a change.
func TestBlocking_B3_TooMany(t *testing.T) {
	run(t, &consulapi.Options{MaxBlocked: 1}, func(h *harness) {
		h.put("a", "v")
		e := h.entry("a")
		others := h.blocked("GET /v1/kv/others?index=1")
		for _, wait := range []string{"", "&wait=500ms"} {
			replies := h.blocked(at("GET /v1/kv/a?consistent"+wait, e.ModifyIndex))
			h.advance(499 * time.Millisecond)
			h.waits(replies)
			if wait == "" {
				h.advance(500 * time.Millisecond)
				h.waits(replies)
			}
			h.advance(100 * time.Millisecond)
			if r := h.answered(replies); r.code != 200 || r.index() != e.ModifyIndex {
				t.Errorf("wait %q: %d %s at %d, not at %d", wait, r.code, r.body, r.index(),
					e.ModifyIndex)
			}
		}
		replies := h.blocked(at("GET /v1/kv/a?raw", e.ModifyIndex))
		h.put("a", "w")
		if r := h.answered(replies); r.body != "w" {
			t.Errorf("%d %s", r.code, r.body)
		}
		h.put("others", "v")
		h.answered(others)
	})
}

// Ensure that thousands of queries may wait at once, but not long beyond the limit, and that
// neither a change nor a client that goes away leaves anything of them behind.
func TestBlocking_Thousands(t *testing.T) {
	const limit = 2000
	run(t, &consulapi.Options{MaxBlocked: limit}, func(h *harness) {
		h.put("a", "v")
		h.put("b", "v")
		a, b := h.entry("a").ModifyIndex, h.entry("b").ModifyIndex
		ctx, cancel := context.WithCancel(context.Background())
		replies, gone := make(chan reply, limit), make(chan struct{}, limit)
		for i := range limit {
			go func() {
				if i%2 == 0 {
					replies <- h.sendAs(context.Background(), at("GET /v1/kv/a?raw", a), nil)
					return
				}
				h.sendAs(ctx, at("GET /v1/kv/b?raw", b), nil)
				gone <- struct{}{}
			}()
		}
		h.settle()
		another := h.blocked(at("GET /v1/kv/a?raw", a))
		h.advance(1100 * time.Millisecond)
		h.answered(another)
		cancel()
		h.settle()
		h.put("a", "w")
		h.settle()
		if len(replies) != limit/2 || len(gone) != limit/2 {
			t.Errorf("%d answered, %d gone", len(replies), len(gone))
		}
	})
}
