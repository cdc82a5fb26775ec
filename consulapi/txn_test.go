package consulapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

// txnReply is the answer to a transaction as a client sees it.
type txnReply struct {
	Results []struct {
		KV      *kv
		Node    *struct{ Node, Address, Datacenter string }
		Service *struct {
			ID, Service string
			Tags        []string
			Port        int
			ModifyIndex uint64
		}
		Check *struct{ CheckID, Status, ServiceName, Output string }
	}
	Errors []struct {
		OpIndex int
		What    string
	}
}

// txn sends a transaction of these operations, which must succeed.
func (h *harness) txn(ops ...string) txnReply {
	h.t.Helper()
	return decode[txnReply](h, h.send("PUT /v1/txn", "["+strings.Join(ops, ",")+"]"))
}

// op returns an operation on a key, with further members.
func op(verb, key, more string) string {
	return fmt.Sprintf(`{"KV":{"Verb":%q,"Key":%q%s}}`, verb, key, more)
}

// refuses sends a transaction that must fail with exactly these errors, each as "index: text", and
// change nothing.
func (h *harness) refuses(ops []string, errs ...string) {
	h.t.Helper()
	before := h.db.Snapshot().Index()
	r := h.send("PUT /v1/txn", "["+strings.Join(ops, ",")+"]")
	if r.code != 409 || !strings.HasPrefix(r.body, `{"Results":null,"Errors":[{"OpIndex":`) {
		h.t.Fatalf("%d %s", r.code, r.body)
	}
	r.code = 200
	var got []string
	for _, e := range decode[txnReply](h, r).Errors {
		got = append(got, fmt.Sprintf("%d: %s", e.OpIndex, e.What))
	}
	if strings.Join(got, "\n") != strings.Join(errs, "\n") {
		h.t.Errorf("%s:\n%s, not\n%s", ops, strings.Join(got, "\n"), strings.Join(errs, "\n"))
	}
	if after := h.db.Snapshot().Index(); after != before {
		h.t.Errorf("%s: index went from %d to %d", ops, before, after)
	}
}

func TestTxn_T1X28_OperationsThatAreNone(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, body := range []string{`[{}]`, `[null]`, `[{"KV":null}]`} {
			h.want("PUT /v1/txn", body, 400, "Bad request: operation 0 is empty")
		}
		h.want("PUT /v1/txn", "["+op("set", "a", "")+",{}]", 400,
			"Bad request: operation 1 is empty")
		h.want("GET /v1/kv/?keys", "", 200, "[]")
	})
}

func TestTxn_T2T3_Body(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/txn", "", 400, "Bad request: Failed to parse body: EOF")
		h.want("PUT /v1/txn", `[{"Bogus":1}]`, 400,
			`Bad request: Failed to parse body: json: unknown field "Bogus"`)
		h.want("PUT /v1/txn", `[{"Session":{}}]`, 400,
			`Bad request: Failed to parse body: json: unknown field "Session"`)
		for body, why := range map[string]string{
			`{}`:                  "json: cannot unmarshal object at byte 1",
			`[1]`:                 "json: cannot unmarshal number at byte 2",
			`[{"KV":{"Verb":1}}]`: "json: cannot unmarshal number into KV.Verb",
		} {
			h.want("PUT /v1/txn", body, 400, "Bad request: Failed to parse body: "+why)
		}
		for _, body := range []string{
			`{}`, `[`, `1`, `[1]`, `[{"KV":{"Verb":"set","Key":"a","Value":"%"}}]`,
			`[{"KV":{"Verb":"set","Key":"a","Flags":-1}}]`, `[{"KV":{"Verb":1}}]`,
			`[{"KV":{"Verb":"set","Key":"a","Flags":18446744073709551616}}]`,
		} {
			r := h.send("PUT /v1/txn", body)
			if r.code != 400 || !strings.HasPrefix(r.body, "Bad request: Failed to parse body: ") {
				t.Errorf("%s: %d %s", body, r.code, r.body)
			}
		}
		for _, body := range []string{`[]`, `null`, `[] and more`} {
			if r := h.send("PUT /v1/txn", body); r.code != 200 ||
				!strings.HasPrefix(r.body, `{"Results":[],"Errors":null`) {
				t.Errorf("%s: %d %s", body, r.code, r.body)
			}
		}
		h.txn(`{"kv":{"verb":"set","key":"a","value":"dg==","flags":18446744073709551615,` +
			`"namespace":"x","partition":"y","index":0,"session":""}}`)
		if e := h.entry("a"); string(e.Value) != "v" || e.Flags != 1<<64-1 {
			t.Errorf("%+v", e)
		}
		h.refuses([]string{op("Set", "a", "")}, `0: unknown KV verb "Set"`)
	})
}

func TestTxn_T4_Limits(t *testing.T) {
	run(t, nil, func(h *harness) {
		var ops []string
		for i := range 64 {
			ops = append(ops, op("set", fmt.Sprint("k", i), ""))
		}
		results := h.txn(ops...).Results
		if len(results) != 64 || results[0].KV.ModifyIndex != results[63].KV.ModifyIndex {
			t.Errorf("%d results", len(results))
		}
		h.want("PUT /v1/txn", "["+strings.Join(append(ops, ops[0]), ",")+"]", 413,
			"Transaction contains too many operations (65 > 64)")
	})
	run(t, &consulapi.Options{MaxValueSize: 50, MaxTxnOps: 1}, func(h *harness) {
		const see = " See https://www.consul.io/docs/agent/options.html#txn_max_req_len."
		large := "[" + op("set", "key", `,"Value":"`+strings.Repeat("x", 40)+`"`) + "]"
		h.want("PUT /v1/txn", large, 413, fmt.Sprintf(
			"Request body(%d bytes) too large, max size: 50 bytes.", len(large))+see)
		r := h.sendAs(h.t.Context(), "PUT /v1/txn", chunked(large))
		if r.code != 413 || r.body != "Request body too large, max size: 50 bytes."+see {
			t.Errorf("%d %s", r.code, r.body)
		}
		h.want("PUT /v1/txn", "[{},{}]", 413, "Transaction contains too many operations (2 > 1)")
	})
}

func TestTxn_T5T6T7T10_Verbs(t *testing.T) {
	run(t, nil, func(h *harness) {
		s := h.create("").ID
		made := h.txn(op("set", "a", `,"Value":"dg==","Flags":7`), op("get", "a", ""),
			op("check-not-exists", "b", ""), op("get-tree", "none", ""),
			op("lock", "l", `,"Session":"`+strings.ToUpper(s)+`","Value":"dw=="`),
			op("check-session", "l", `,"Session":"`+s+`"`), op("check-session", "a", ""),
			op("cas", "c", ""), op("delete", "none", ""), op("get-tree", "a", "")).Results
		if len(made) != 7 || made[0].KV.Value != nil || string(made[1].KV.Value) != "v" ||
			made[1].KV.Flags != 7 || made[2].KV.Session != s || made[2].KV.LockIndex != 1 ||
			made[2].KV.Value != nil || made[5].KV.Key != "c" || made[6].KV.Value == nil {
			t.Fatalf("%+v", made)
		}
		index := made[0].KV.ModifyIndex
		for i, result := range made {
			if result.KV.ModifyIndex != index {
				t.Errorf("result %d has index %d, not %d", i, result.KV.ModifyIndex, index)
			}
		}
		more := h.txn(op("check-index", "a", fmt.Sprintf(`,"Index":%d`, index)),
			op("cas", "a", fmt.Sprintf(`,"Index":%d,"Value":"eA=="`, index)),
			op("unlock", "l", `,"Session":"`+s+`","Flags":3`), op("get", "l", ""),
			op("delete-cas", "c", fmt.Sprintf(`,"Index":%d`, index)), op("delete", "a", ""),
			op("delete-cas", "a", `,"Index":1`)).Results
		if len(more) != 4 || more[3].KV.Value != nil || more[3].KV.Flags != 3 ||
			more[3].KV.Session != "" {
			t.Fatalf("%+v", more)
		}
		h.want("GET /v1/kv/?keys", "", 200, `["l"]`)
		h.put("l", "v")
		h.put("l/a", "v")
		h.put("l/b/c", "v")
		h.txn(op("delete-tree", "l/", ""))
		h.want("GET /v1/kv/?keys", "", 200, `["l"]`)
		locked := h.txn(op("lock", "l", `,"Session":"`+s+`"`)).Results[0].KV
		if e := h.entry("l"); e.Value != nil || e.Session != s {
			t.Errorf("locked without a value: %+v", e)
		}
		h.txn(op("check-index", "l", fmt.Sprintf(`,"Index":%d`, locked.ModifyIndex)))
		r := h.want("PUT /v1/txn", "["+op("delete-tree", "", "")+"]", 200,
			`{"Results":[],"Errors":null}`)
		if r.index() != 0 || r.header.Get("X-Consul-KnownLeader") != "" {
			t.Errorf("headers are %v", r.header)
		}
		h.want("GET /v1/kv/?keys", "", 200, `[]`)
	})
}

func TestTxn_T5_Failures(t *testing.T) {
	run(t, nil, func(h *harness) {
		s, other := h.create("").ID, h.create("").ID
		h.want("PUT /v1/kv/l?acquire="+s, "", 200, "true")
		h.put("k", "v")
		index := h.entry("k").ModifyIndex
		with := func(id string) string { return `,"Session":"` + id + `"` }
		for _, test := range []struct{ op, what string }{
			{op("cas", "k", `,"Index":1`), `failed to set key "k", index is stale`},
			{op("cas", "k", ``), `failed to set key "k", index is stale`},
			{op("lock", "k", ``), `missing session`},
			{op("lock", "k", with("nope")), `invalid session "nope"`},
			{op("lock", "l", with(other)), `failed to lock key "l", lock is already held`},
			{op("unlock", "l", ``), `missing session`},
			{op("unlock", "l", with(other)),
				`failed to unlock key "l", lock isn't held, or is held by another session`},
			{op("unlock", "l", with("nope")),
				`failed to unlock key "l", lock isn't held, or is held by another session`},
			{op("get", "none", ``), `key "none" doesn't exist`},
			{op("get-or-empty", "none", ``), `unknown KV verb "get-or-empty"`},
			{op("check-index", "none", ``), `failed to check index, key "none" doesn't exist`},
			{op("check-index", "k", `,"Index":1`), fmt.Sprintf(
				`failed index check for key "k", current modify index %d != 1`, index)},
			{op("check-session", "none", ``), `failed to check session, key "none" doesn't exist`},
			{op("check-session", "l", with(other)), `failed session check for key "l", ` +
				`current session "` + s + `" != "` + other + `"`},
			{op("check-session", "l", ``), `failed session check for key "l", ` +
				`current session "` + s + `" != ""`},
			{op("check-session", "k", with("nope")),
				`failed session check for key "k", current session "" != "nope"`},
			{op("check-session", "k", with("00000000-0000-0000-0000-000000000000")),
				`failed session check for key "k", current session "" != ` +
					`"00000000-0000-0000-0000-000000000000"`},
			{op("check-not-exists", "k", ``), `key "k" exists`},
			{op("delete-cas", "k", `,"Index":1`), `failed to delete key "k", index is stale`},
			{op("get", "", ``), `Must provide key`},
			{op("get-tree", "", ``), `Must provide key`},
			{op("x", "k", ``), `unknown KV verb "x"`},
		} {
			h.refuses([]string{test.op}, "0: "+test.what)
		}
	})
}

// Ensure that all failures are told, even those that follow from others, and that nothing is done.
func TestTxn_T8_AllFailures(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.refuses([]string{op("set", "a", ""), op("check-index", "b", ""), op("get", "c", ""),
			op("lock", "d", `,"Session":"nope"`), op("get", "d", ""), op("get", "a", "")},
			`1: failed to check index, key "b" doesn't exist`, `2: key "c" doesn't exist`,
			`3: invalid session "nope"`, `4: key "d" doesn't exist`)
		h.want("GET /v1/kv/?keys", "", 200, "[]")
	})
}

// Ensure that errors of the operations themselves are reported alone, before anything is tried.
func TestTxn_T9_EmptyKeysFirst(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.refuses([]string{op("get", "none", ""), op("set", "", ""), op("delete-tree", "", ""),
			op("x", "", "")}, "1: Must provide key", "3: Must provide key")
	})
}

// Ensure that a lock-delay counts inside a transaction.
func TestTxn_S33X9_LockDelay(t *testing.T) {
	run(t, nil, func(h *harness) {
		s, next := h.session(nil), h.create("").ID
		h.want("PUT /v1/kv/d/1?acquire="+s.ID().String(), "", 200, "true")
		h.must(h.db.EndSession(s.ID()))
		lock := []string{op("lock", "d/1", `,"Session":"`+next+`"`)}
		h.refuses(lock, `0: failed to lock key "d/1" due to lock delay`)
		h.advance(15 * time.Second)
		if got := h.txn(lock...).Results; got[0].KV.Session != next {
			t.Errorf("%+v", got)
		}
	})
}

// Ensure that a transaction that cannot write answers as a read, and never waits.
func TestTxn_T11T12B16_ReadOnly(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "v")
		const meta = `,"Index":1,"LastContact":0,"KnownLeader":true,"ConsistencyLevel":"",` +
			`"NotModified":false,"Backend":0,"ResultsFilteredByACLs":false}`
		body := "[" + op("get", "a", "") + "]"
		e := h.entry("a")
		r := h.want("PUT /v1/txn?stale&index=99999999&wait=1h", body, 200, fmt.Sprintf(
			`{"Results":[{"KV":{"LockIndex":0,"Key":"a","Flags":0,"Value":"dg==",`+
				`"CreateIndex":%d,"ModifyIndex":%d}}],"Errors":null`+meta,
			e.CreateIndex, e.ModifyIndex))
		if r.header.Get("X-Consul-KnownLeader") != "true" || r.index() != 0 ||
			r.header.Get("X-Consul-LastContact") != "0" {
			t.Errorf("headers are %v", r.header)
		}
		h.want("PUT /v1/txn", "["+op("get", "b", "")+"]", 409,
			`{"Results":null,"Errors":[{"OpIndex":0,"What":"key \"b\" doesn't exist"}]`+meta)
		r = h.want("PUT /v1/txn", "["+op("get", "", "")+"]", 409,
			`{"Results":null,"Errors":[{"OpIndex":0,"What":"Must provide key"}],"Index":0,`+
				`"LastContact":0,"KnownLeader":false,"ConsistencyLevel":"",`+
				`"NotModified":false,"Backend":0,"ResultsFilteredByACLs":false}`)
		if r.header.Get("X-Consul-KnownLeader") != "false" || r.index() != 0 {
			t.Errorf("headers of what is refused before it begins are %v", r.header)
		}
		h.want("PUT /v1/txn?index=x", body, 400, "Invalid index")
		h.want("PUT /v1/txn?stale&consistent", body, 400,
			"Cannot specify ?stale with ?consistent, conflicting semantics.")
		write := "[" + op("delete", "a", "") + "]"
		h.want("PUT /v1/txn?index=x&stale&consistent", write, 200, `{"Results":[],"Errors":null}`)
		h.want("POST /v1/txn", "[]", 405, "method POST not allowed")
	})
}

// Ensure that no reader sees a part of a transaction, and that waiters see it at one index.
func TestTxn_I12_OneIndex(t *testing.T) {
	run(t, nil, func(h *harness) {
		replies := h.blocked("GET /v1/kv/p/?recurse&index=1")
		h.txn(op("set", "p/a", ""), op("set", "p/b", ""), op("set", "p/a", `,"Value":"dg=="`))
		entries := decode[[]kv](h, h.answered(replies))
		if len(entries) != 2 || string(entries[0].Value) != "v" ||
			entries[0].CreateIndex != entries[1].ModifyIndex {
			t.Errorf("%+v", entries)
		}
	})
}

// Ensure that a transaction is refused when the database takes no writes any more. One that only
// reads is answered like any read.
func TestTxn_ErrClosed(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "v")
		h.must(h.db.Close())
		r := h.send("PUT /v1/txn", "["+op("set", "a", "")+"]")
		if r.code != 500 || !strings.Contains(r.body, lockd.ErrClosed.Error()) {
			t.Errorf("set: %d %s", r.code, r.body)
		}
		r = h.send("PUT /v1/txn", "["+op("get", "a", "")+","+op("get-tree", "a", "")+"]")
		if r.code != 200 || strings.Count(r.body, `"Value":"dg=="`) != 2 {
			t.Errorf("get: %d %s", r.code, r.body)
		}
	})
}

// Ensure that a transaction that may write does not keep other writers waiting while it reads any
// number of keys: beyond the limit it is refused, and changes nothing. One that only reads is not.
func TestTxn_T6_TreesAreLimited(t *testing.T) {
	run(t, nil, func(h *harness) {
		const most = 10_000
		h.must(h.db.Update(func(tx *lockd.Txn) error {
			for i := range most + 1 {
				if _, err := tx.Put(fmt.Sprintf("t/%05d", i), nil, nil); err != nil {
					return err
				}
			}
			return nil
		}))
		set, all := op("set", "a", ""), op("get-tree", "t/", "")
		const limit = ", the trees of a transaction that may write have at most 10000 entries: " +
			"get them in a transaction that only reads"
		h.refuses([]string{set, all}, `1: failed to get tree "t/"`+limit)
		h.refuses([]string{set, op("get-tree", "t/0", ""), op("get-tree", "t/1", ""),
			op("get-tree", "none", ""), op("get-tree", "t/00000", "")},
			`2: failed to get tree "t/1"`+limit, `4: failed to get tree "t/00000"`+limit)
		if got := h.txn(set, op("get-tree", "t/0", "")).Results; len(got) != most+1 {
			t.Errorf("%d results", len(got))
		}
		if got := h.txn(all, all).Results; len(got) != 2*(most+1) {
			t.Errorf("%d results of a transaction that only reads", len(got))
		}
	})
}
