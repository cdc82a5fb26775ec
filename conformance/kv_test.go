package conformance_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

func TestK1_PutOfANewKey(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("a", "1")
		if p.CreateIndex < 2 || p.ModifyIndex != p.CreateIndex || p.LockIndex != 0 ||
			string(p.Value) != "1" || p.Session != "" {
			h.t.Fatal(brief(p))
		}
	})
}

func TestK2K3_PutMovesOnlyWhatItChanges(t *testing.T) {
	each(t, func(h *harness) {
		first := h.put("a", "1")
		equal(h, "same value", brief(h.put("a", "1")), brief(first))
		second := h.put("a", "2")
		equal(h, "CreateIndex", second.CreateIndex, first.CreateIndex)
		if second.ModifyIndex <= first.ModifyIndex {
			h.t.Fatalf("%s after %s", brief(second), brief(first))
		}
		_, err := h.KV().Put(&api.KVPair{Key: "a", Value: []byte("2"), Flags: 7}, nil)
		check(h.t, err)
		if third := h.get("a"); third.Flags != 7 || third.ModifyIndex <= second.ModifyIndex {
			h.t.Fatalf("%s after %s", brief(third), brief(second))
		}
	})
}

func TestK4K5K6K7K8_CompareAndSet(t *testing.T) {
	each(t, func(h *harness) {
		cas := func(index uint64, value string) bool {
			h.t.Helper()
			ok, _, err := h.KV().CAS(
				&api.KVPair{Key: "a", Value: []byte(value), ModifyIndex: index}, nil)
			check(h.t, err)
			return ok
		}
		equal(h, "K6: an index of a key that is not there", cas(1, "x"), false)
		equal(h, "K4: 0 for a new key", cas(0, "1"), true)
		first := h.get("a")
		equal(h, "K5: 0 for one that is there", cas(0, "x"), false)
		equal(h, "K7: another index", cas(first.ModifyIndex+1, "x"), false)
		equal(h, "K11: nothing has changed", brief(h.get("a")), brief(first))
		equal(h, "K8: its index", cas(first.ModifyIndex, "2"), true)
		second := h.get("a")
		equal(h, "value", string(second.Value), "2")
		equal(h, "K8: same value", cas(second.ModifyIndex, "2"), true)
		equal(h, "a no-op", brief(h.get("a")), brief(second))
	})
}

func TestK10X1_AnybodyMayWriteALockedKey(t *testing.T) {
	each(t, func(h *harness) {
		id := h.session(nil)
		equal(h, "acquire", h.acquire("a", id, "1"), true)
		p := h.put("a", "2")
		if p.Session != id || p.LockIndex != 1 || string(p.Value) != "2" {
			h.t.Fatal(brief(p))
		}
		ok, _, err := h.KV().CAS(
			&api.KVPair{Key: "a", ModifyIndex: p.ModifyIndex, Session: "ignored"}, nil)
		check(h.t, err)
		equal(h, "cas", ok, true)
		if p = h.get("a"); p.Session != id || p.LockIndex != 1 || len(p.Value) != 0 {
			h.t.Fatal(brief(p))
		}
	})
}

func TestK13K15K16K17_Acquire(t *testing.T) {
	each(t, func(h *harness) {
		one, two := h.session(nil), h.session(nil)
		equal(h, "K13", h.acquire("a", one, "1"), true)
		first := h.get("a")
		if first.LockIndex != 1 || first.Session != one || first.CreateIndex != first.ModifyIndex {
			h.t.Fatal(brief(first))
		}
		equal(h, "K16", h.acquire("a", one, "1"), true)
		equal(h, "K17", h.acquire("a", two, "x"), false)
		equal(h, "K16, K17: no change", brief(h.get("a")), brief(first))
		equal(h, "K15", h.acquire("a", one, "2"), true)
		second := h.get("a")
		if second.LockIndex != 1 || second.ModifyIndex <= first.ModifyIndex {
			h.t.Fatal(brief(second))
		}
	})
}

func TestK14K21K22K39_ReleaseAndAcquireAgain(t *testing.T) {
	each(t, func(h *harness) {
		one := h.session(&api.SessionEntry{LockDelay: 30 * time.Second})
		two := h.session(nil)
		equal(h, "acquire", h.acquire("a", one, "1"), true)
		equal(h, "K22: by another", h.release("a", two, "x"), false)
		ok, _, err := h.KV().Release(
			&api.KVPair{Key: "a", Session: one, Value: []byte("2"), Flags: 9}, nil)
		check(h.t, err)
		equal(h, "K21", ok, true)
		p := h.get("a")
		if p.Session != "" || p.LockIndex != 1 || string(p.Value) != "2" || p.Flags != 9 {
			h.t.Fatal(brief(p))
		}
		equal(h, "K22: again", h.release("a", one, "x"), false)
		equal(h, "K39, K14: no delay", h.acquire("a", two, "3"), true)
		equal(h, "LockIndex", h.get("a").LockIndex, uint64(2))
	})
}

func TestK18K33_NobodyAcquiresDuringALockDelay(t *testing.T) {
	each(t, func(h *harness) {
		one := h.session(&api.SessionEntry{LockDelay: 2 * time.Second})
		two := h.session(nil)
		equal(h, "acquire", h.acquire("a", one, "1"), true)
		h.destroy(one)
		freed := h.get("a")
		if freed.Session != "" || freed.LockIndex != 1 || string(freed.Value) != "1" {
			h.t.Fatal(brief(freed))
		}
		equal(h, "K18: at once", h.acquire("a", two, "2"), false)
		h.put("b", "") // a neighbour shows whether the refusal used an index up
		h.advance(2*time.Second - time.Nanosecond)
		equal(h, "S33: just before its end", h.acquire("a", two, "2"), false)
		equal(h, "no change", brief(h.get("a")), brief(freed))
		h.advance(time.Nanosecond)
		equal(h, "at its end", h.acquire("a", two, "2"), true)
		equal(h, "LockIndex", h.get("a").LockIndex, uint64(2))
	})
}

func TestK20K25_SessionsThatDoNotLive(t *testing.T) {
	each(t, func(h *harness) {
		gone := h.session(nil)
		h.destroy(gone)
		for _, id := range []string{gone, "nope"} {
			_, _, err := h.KV().Acquire(&api.KVPair{Key: "a", Session: id}, nil)
			h.refused(err, `500 (raft apply failed: invalid session "`+id+`")`)
			equal(h, "K25: release", h.release("a", id, ""), false)
		}
		_, _, err := h.KV().Acquire(&api.KVPair{Key: "a"}, nil)
		h.refused(err, "500 (raft apply failed: missing session)") // K19
		h.missing("a")
	})
}

func TestK26K27_Delete(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("a", "1")
		for range 2 {
			_, err := h.KV().Delete("a", nil)
			check(h.t, err)
		}
		if index := h.missing("a"); index <= p.ModifyIndex {
			h.t.Fatalf("index %d after %s", index, brief(p))
		}
		if again := h.put("a", "1"); again.CreateIndex <= p.CreateIndex {
			h.t.Fatalf("%s after %s", brief(again), brief(p))
		}
	})
}

func TestK28K29K30_DeleteIfUnchanged(t *testing.T) {
	each(t, func(h *harness) {
		remove := func(index uint64) bool {
			h.t.Helper()
			ok, _, err := h.KV().DeleteCAS(&api.KVPair{Key: "a", ModifyIndex: index}, nil)
			check(h.t, err)
			return ok
		}
		equal(h, "K28: not there", remove(7), true)
		p := h.put("a", "1")
		equal(h, "K30: 0", remove(0), false)
		equal(h, "K30: another index", remove(p.ModifyIndex+1), false)
		equal(h, "still there", brief(h.get("a")), brief(p))
		equal(h, "K29: its index", remove(p.ModifyIndex), true)
		h.missing("a")
	})
}

func TestK31K32K40_DeleteOfAllWithAPrefix(t *testing.T) {
	each(t, func(h *harness) {
		for _, key := range []string{"r", "r/a", "r2", "s"} {
			h.put(key, "1")
		}
		for _, prefix := range []string{"r", "none"} {
			_, err := h.KV().DeleteTree(prefix, nil)
			check(h.t, err)
		}
		keys, _, err := h.KV().Keys("", "", nil)
		check(h.t, err)
		equal(h, "keys", strings.Join(keys, " "), "s")
	})
}

func TestK37_DeleteOfALockedKeyFreesIt(t *testing.T) {
	each(t, func(h *harness) {
		one, two := h.session(nil), h.session(nil)
		equal(h, "acquire", h.acquire("a", one, ""), true)
		_, err := h.KV().Delete("a", nil)
		check(h.t, err)
		equal(h, "by another, at once", h.acquire("a", two, ""), true)
		if h.info(one) == nil {
			h.t.Fatal("the session has ended with its key")
		}
	})
}

func TestI4I7_ListTellsOfDeletesAndNotOfNeighbours(t *testing.T) {
	each(t, func(h *harness) {
		list := func(prefix string) (api.KVPairs, uint64) {
			h.t.Helper()
			pairs, meta, err := h.KV().List(prefix, nil)
			check(h.t, err)
			return pairs, meta.LastIndex
		}
		first := h.put("p/1", "1")
		second := h.put("p/2", "2")
		pairs, index := list("p/")
		equal(h, "entries", len(pairs), 2)
		equal(h, "order", pairs[0].Key+" "+pairs[1].Key, "p/1 p/2")
		equal(h, "I4", index, second.ModifyIndex)
		h.put("p", "neighbour")
		_, after := list("p/")
		equal(h, "I7: a neighbour", after, index)
		_, err := h.KV().Delete("p/2", nil)
		check(h.t, err)
		pairs, after = list("p/")
		equal(h, "what is left", brief(pairs[0]), brief(first))
		if len(pairs) != 1 || after <= index {
			h.t.Fatalf("I7: %d entries at index %d, after %d", len(pairs), after, index)
		}
		if pairs, _ = list("q/"); pairs != nil {
			h.t.Fatalf("H12: %v", pairs)
		}
	})
}

func TestI10_NoIndexIsZero(t *testing.T) {
	each(t, func(h *harness) {
		if index := h.missing("a"); index < 1 {
			h.t.Fatalf("index %d", index)
		}
	})
}

func TestX13_AnAbsentKeyDoesNotMove(t *testing.T) {
	each(t, func(h *harness) {
		before := h.missing("a")
		h.put("b", "1")
		equal(h, "index", h.missing("a"), before)
		if p := h.put("a", "1"); p.ModifyIndex <= before {
			h.t.Fatalf("%s, not after %d", brief(p), before)
		}
	})
}

func TestH2H3H4_KeysComeBackAsTheyWere(t *testing.T) {
	each(t, func(h *harness) {
		keys := []string{
			"100%", "a b", "a+b", "p%20c", "ds//b", "./x/../y", "ü/世界", "q?x=1#y", "t/",
		}
		for _, key := range keys {
			equal(h, "key", h.put(key, "v "+key).Key, key)
		}
		got, _, err := h.KV().Keys("", "", nil)
		check(h.t, err)
		slices.Sort(keys)
		equal(h, "keys", strings.Join(got, "\n"), strings.Join(keys, "\n"))
		for _, key := range keys {
			_, err := h.KV().Delete(key, nil)
			check(h.t, err)
			h.missing(key)
		}
	})
}

func TestH10_KeysUpToASeparator(t *testing.T) {
	each(t, func(h *harness) {
		for _, key := range []string{"s/a", "s/b/1", "s/b/2", "s/c", "s/c/", "s/d/e/f"} {
			h.put(key, "")
		}
		for _, test := range []struct{ prefix, separator, want string }{
			{"s/", "/", "s/a s/b/ s/c s/c/ s/d/"},
			{"s", "/", "s/"},
			{"s/", "b", "s/a s/b s/c s/c/ s/d/e/f"},
			{"s/d", "", "s/d/e/f"},
			{"none", "", ""},
		} {
			keys, _, err := h.KV().Keys(test.prefix, test.separator, nil)
			check(h.t, err)
			equal(h, test.prefix+" "+test.separator, strings.Join(keys, " "), test.want)
		}
	})
}

func TestH11_NumbersAndBytesComeBackAsTheyWere(t *testing.T) {
	each(t, func(h *harness) {
		value := make([]byte, 256)
		for i := range value {
			value[i] = byte(i)
		}
		pair := &api.KVPair{Key: "a", Value: value, Flags: math.MaxUint64}
		_, err := h.KV().Put(pair, nil)
		check(h.t, err)
		p := h.get("a")
		equal(h, "flags", p.Flags, uint64(math.MaxUint64))
		equal(h, "value", string(p.Value), string(value))
	})
}

func TestH15_AValueOverTheLimitIsRefused(t *testing.T) {
	each(t, func(h *harness) {
		const limit = 512 << 10
		h.put("a", strings.Repeat("x", limit))
		equal(h, "size", len(h.get("a").Value), limit)
		_, err := h.KV().Put(&api.KVPair{Key: "b", Value: make([]byte, limit+1)}, nil)
		h.refused(err, "413")
		h.missing("b")
	})
}
