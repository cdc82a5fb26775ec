package conformance_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// kvTxn runs a transaction on keys.
func (h *harness) kvTxn(ops ...api.KVTxnOp) (bool, *api.TxnResponse) {
	h.t.Helper()
	var all api.TxnOps
	for i := range ops {
		all = append(all, &api.TxnOp{KV: &ops[i]})
	}
	ok, response, _, err := h.Txn().Txn(all, nil)
	check(h.t, err)
	return ok, response
}

// succeeds runs a transaction that must succeed, and returns its results in brief.
func (h *harness) succeeds(ops ...api.KVTxnOp) []string {
	h.t.Helper()
	ok, response := h.kvTxn(ops...)
	if !ok || len(response.Errors) != 0 {
		h.t.Fatalf("rolled back: %v", whats(response.Errors))
	}
	var results []string
	for _, result := range response.Results {
		results = append(results, brief(result.KV))
	}
	return results
}

// whats returns each failure with the place of its operation.
func whats(errors api.TxnErrors) string {
	var texts []string
	for _, e := range errors {
		texts = append(texts, fmt.Sprintf("%d: %s", e.OpIndex, e.What))
	}
	return strings.Join(texts, "; ")
}

// rolledBack runs a transaction that must fail for these reasons.
func (h *harness) rolledBack(want string, ops ...api.KVTxnOp) {
	h.t.Helper()
	ok, response := h.kvTxn(ops...)
	if ok || len(response.Results) != 0 || whats(response.Errors) != want {
		h.t.Fatalf("%v, %d results, %q, not %q",
			ok, len(response.Results), whats(response.Errors), want)
	}
}

func TestT6T7I12_OperationsRunInOrderAtOneIndex(t *testing.T) {
	each(t, func(h *harness) {
		results := h.succeeds(
			api.KVTxnOp{Verb: api.KVSet, Key: "t/a", Value: []byte("1")},
			api.KVTxnOp{Verb: api.KVSet, Key: "t/b", Value: []byte("1"), Flags: 5},
			api.KVTxnOp{Verb: api.KVCheckNotExists, Key: "t/c"},
			api.KVTxnOp{Verb: api.KVSet, Key: "t/a", Value: []byte("2")},
			api.KVTxnOp{Verb: api.KVGet, Key: "t/a"},
			api.KVTxnOp{Verb: api.KVGetTree, Key: "t/"},
			api.KVTxnOp{Verb: api.KVDelete, Key: "t/b"},
			api.KVTxnOp{Verb: api.KVGetTree, Key: "t/"},
		)
		a := h.get("t/a")
		equal(h, "I12", a.CreateIndex, a.ModifyIndex)
		row := func(key, value string, flags int) string {
			return fmt.Sprintf("%s=%q flags %d session \"\" create %d modify %d lock 0",
				key, value, flags, a.ModifyIndex, a.ModifyIndex)
		}
		equal(h, "results", strings.Join(results, "\n"), strings.Join([]string{
			row("t/a", "", 0), row("t/b", "", 5), row("t/a", "", 0), row("t/a", "2", 0),
			row("t/a", "2", 0), row("t/b", "1", 5), row("t/a", "2", 0),
		}, "\n"))
		h.missing("t/b")
	})
}

func TestT8_AFailureUndoesAllAndAllFailuresAreTold(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("a", "1")
		h.rolledBack(
			fmt.Sprintf(`1: failed index check for key "a", current modify index %d != 1; `+
				`2: key "b" doesn't exist`, p.ModifyIndex),
			api.KVTxnOp{Verb: api.KVSet, Key: "c", Value: []byte("1")},
			api.KVTxnOp{Verb: api.KVCheckIndex, Key: "a", Index: 1},
			api.KVTxnOp{Verb: api.KVGet, Key: "b"},
		)
		h.missing("c")
	})
}

func TestT5_EachVerbRefusesInItsWords(t *testing.T) {
	each(t, func(h *harness) {
		id, other := h.session(nil), h.session(nil)
		equal(h, "acquire", h.acquire("locked", id, ""), true)
		p := h.put("a", "1")
		for _, test := range []struct {
			op   api.KVTxnOp
			want string
		}{
			{api.KVTxnOp{Verb: api.KVCAS, Key: "a", Index: 1},
				`failed to set key "a", index is stale`},
			{api.KVTxnOp{Verb: api.KVDeleteCAS, Key: "a", Index: 1},
				`failed to delete key "a", index is stale`},
			{api.KVTxnOp{Verb: api.KVLock, Key: "locked", Session: other},
				`failed to lock key "locked", lock is already held`},
			{api.KVTxnOp{Verb: api.KVLock, Key: "a"}, `missing session`},
			{api.KVTxnOp{Verb: api.KVLock, Key: "a", Session: "nope"}, `invalid session "nope"`},
			{api.KVTxnOp{Verb: api.KVUnlock, Key: "locked", Session: other},
				`failed to unlock key "locked", lock isn't held, or is held by another session`},
			{api.KVTxnOp{Verb: api.KVGet, Key: "none"}, `key "none" doesn't exist`},
			{api.KVTxnOp{Verb: api.KVCheckIndex, Key: "none"},
				`failed to check index, key "none" doesn't exist`},
			{api.KVTxnOp{Verb: api.KVCheckSession, Key: "none", Session: id},
				`failed to check session, key "none" doesn't exist`},
			{api.KVTxnOp{Verb: api.KVCheckSession, Key: "locked", Session: other},
				fmt.Sprintf(`failed session check for key "locked", current session %q != %q`,
					id, other)},
			{api.KVTxnOp{Verb: api.KVCheckNotExists, Key: "a"}, `key "a" exists`},
			{api.KVTxnOp{Verb: api.KVSet}, `Must provide key`},
			{api.KVTxnOp{Verb: "x", Key: "a"}, `unknown KV verb "x"`},
		} {
			h.rolledBack("0: "+test.want, test.op)
		}
		equal(h, "unchanged", brief(h.get("a")), brief(p))
	})
}

func TestT5_LocksInATransaction(t *testing.T) {
	each(t, func(h *harness) {
		id := h.session(nil)
		h.succeeds(
			api.KVTxnOp{Verb: api.KVLock, Key: "a", Session: id, Value: []byte("1"), Flags: 3},
			api.KVTxnOp{Verb: api.KVCheckSession, Key: "a", Session: id},
			api.KVTxnOp{Verb: api.KVLock, Key: "b", Session: id},
		)
		a, b := h.get("a"), h.get("b")
		if a.Session != id || string(a.Value) != "1" || a.Flags != 3 || a.LockIndex != 1 ||
			b.Session != id || a.ModifyIndex != b.ModifyIndex {
			h.t.Fatalf("%s, %s", brief(a), brief(b))
		}
		h.succeeds(
			api.KVTxnOp{Verb: api.KVUnlock, Key: "a", Session: id}, // K21: without its value
			api.KVTxnOp{Verb: api.KVCheckSession, Key: "a"},
			api.KVTxnOp{Verb: api.KVDeleteTree, Key: "b"},
		)
		if a = h.get("a"); a.Session != "" || len(a.Value) != 0 || a.LockIndex != 1 {
			h.t.Fatal(brief(a))
		}
		h.missing("b")
	})
}

func TestS33_ALockInATransactionHeedsTheDelay(t *testing.T) {
	each(t, func(h *harness) {
		one := h.session(&api.SessionEntry{LockDelay: time.Second})
		two := h.session(nil)
		equal(h, "acquire", h.acquire("a", one, ""), true)
		h.destroy(one)
		lock := api.KVTxnOp{Verb: api.KVLock, Key: "a", Session: two}
		h.rolledBack(`0: failed to lock key "a" due to lock delay`, lock)
		h.advance(time.Second)
		h.succeeds(lock)
	})
}

func TestT4_TooManyOperationsAreRefused(t *testing.T) {
	each(t, func(h *harness) {
		var ops api.TxnOps
		for i := range 64 {
			op := &api.KVTxnOp{Verb: api.KVSet, Key: fmt.Sprintf("k/%d", i)}
			ops = append(ops, &api.TxnOp{KV: op})
		}
		ok, _, _, err := h.Txn().Txn(ops, nil)
		check(h.t, err)
		equal(h, "64", ok, true)
		_, _, _, err = h.Txn().Txn(append(ops, ops[0]), nil)
		h.refused(err, "Transaction contains too many operations (65 > 64)")
	})
}

func TestT11_ATransactionThatOnlyReads(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("a", "1")
		ops := api.TxnOps{{KV: &api.KVTxnOp{Verb: api.KVGet, Key: "a"}}}
		ok, response, meta, err := h.Txn().Txn(ops, &api.QueryOptions{AllowStale: true})
		check(h.t, err)
		if !ok || len(response.Results) != 1 || !meta.KnownLeader {
			h.t.Fatalf("%v %+v %+v", ok, response, meta)
		}
		equal(h, "entry", brief(response.Results[0].KV), brief(p))
		ops[0].KV.Key = "none"
		ok, response, _, err = h.Txn().Txn(ops, nil)
		check(h.t, err)
		equal(h, "ok", ok, false)
		equal(h, "failure", whats(response.Errors), `0: key "none" doesn't exist`)
	})
}

func TestB16_ATransactionNeverBlocks(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("a", "1")
		ops := api.TxnOps{{KV: &api.KVTxnOp{Verb: api.KVGet, Key: "a"}}}
		ok, _, _, err := h.Txn().Txn(ops, &api.QueryOptions{WaitIndex: p.ModifyIndex})
		check(h.t, err)
		equal(h, "ok", ok, true)
	})
}

func TestI13_ANoOpKeepsItsIndex(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("a", "1")
		h.succeeds(
			api.KVTxnOp{Verb: api.KVSet, Key: "a", Value: []byte("1")},
			api.KVTxnOp{Verb: api.KVSet, Key: "b", Value: []byte("1")},
		)
		equal(h, "entry", brief(h.get("a")), brief(p))
	})
}

func TestTxn_OfTheKVClient(t *testing.T) {
	each(t, func(h *harness) {
		id := h.session(nil)
		ok, response, _, err := h.KV().Txn(api.KVTxnOps{
			{Verb: api.KVLock, Key: "a", Session: id, Value: []byte("1")},
			{Verb: api.KVGet, Key: "a"},
		}, nil)
		check(h.t, err)
		if !ok || len(response.Results) != 2 {
			h.t.Fatalf("%v %+v", ok, response)
		}
		equal(h, "entry", brief(response.Results[1]), brief(h.get("a")))
	})
}
