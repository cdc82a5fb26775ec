package consulapi_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

// Ensure that an entry has the members of Consul's entry, in its order, and numbers of 64 bits.
func TestKV_H11H14K1_EntryIsShownAsConsulDoes(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/kv/a%3C%3E?flags=18446744073709551615", "v", 200, "true")
		e := h.entry("a%3C%3E")
		h.want("GET /v1/kv/a%3C%3E", "", 200, fmt.Sprintf(`[{"LockIndex":0,"Key":"a\u003c\u003e",`+
			`"Flags":18446744073709551615,"Value":"dg==","CreateIndex":%d,"ModifyIndex":%d}]`,
			e.CreateIndex, e.ModifyIndex))
		r := h.send("GET /v1/kv/a%3C%3E", "")
		if r.header.Get("Content-Type") != "application/json" || r.index() != e.ModifyIndex {
			t.Errorf("headers are %v", r.header)
		}
		h.want("PUT /v1/kv/empty", "", 200, "true")
		if r := h.send("GET /v1/kv/empty?pretty", ""); !strings.Contains(r.body,
			"\n        \"Value\": null,\n") || !strings.HasSuffix(r.body, "]\n") {
			t.Errorf("pretty: %q", r.body)
		}
		h.want("PUT /v1/kv/empty?pretty", "", 200, "true\n")
	})
}

// Ensure that an entry with a large value has the members that a small one has.
func TestKV_H11K1_LargeEntryIsShownAsASmallOne(t *testing.T) {
	run(t, nil, func(h *harness) {
		id := h.session(nil).ID().String()
		for _, size := range []int{1, 300_000} {
			key, value := fmt.Sprint("of", size), strings.Repeat("v", size)
			shows := func(lockIndex int, session string) {
				t.Helper()
				e := h.entry(key)
				h.want("GET /v1/kv/"+key, "", 200, fmt.Sprintf(`[{"LockIndex":%d,"Key":%q,`+
					`"Flags":7,"Value":%q,%s"CreateIndex":%d,"ModifyIndex":%d}]`, lockIndex, key,
					base64.StdEncoding.EncodeToString([]byte(value)), session, e.CreateIndex,
					e.ModifyIndex))
			}
			h.want("PUT /v1/kv/"+key+"?flags=7", value, 200, "true")
			shows(0, "")
			h.want("PUT /v1/kv/"+key+"?flags=7&acquire="+id, value, 200, "true")
			shows(1, `"Session":"`+id+`",`)
		}
	})
}

// Ensure that the rules of set, cas and delete reach the client unchanged.
func TestKV_K2K3K4K5K6K7K8_Writes(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/kv/a?cas=7", "v", 200, "false")
		h.want("PUT /v1/kv/a?cas=0", "v", 200, "true")
		first := h.entry("a")
		h.want("PUT /v1/kv/a?cas=0", "w", 200, "false")
		h.put("a", "v")
		if again := h.entry("a"); again.ModifyIndex != first.ModifyIndex {
			t.Error("the same value again moved the index")
		}
		h.want("PUT /v1/kv/a?flags=42", "v", 200, "true")
		if e := h.entry("a"); e.ModifyIndex == first.ModifyIndex || e.Flags != 42 ||
			e.CreateIndex != first.CreateIndex {
			t.Errorf("flags were not written: %+v", e)
		}
		h.want(fmt.Sprintf("PUT /v1/kv/a?cas=%d", first.ModifyIndex), "w", 200, "false")
		h.want(fmt.Sprintf("PUT /v1/kv/a?cas=%d", h.entry("a").ModifyIndex), "w", 200, "true")
		if e := h.entry("a"); string(e.Value) != "w" || e.Flags != 0 {
			t.Errorf("after the cas: %+v", e)
		}
	})
}

func TestKV_H16K26K27K28K29K30_Deletes(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("DELETE /v1/kv/a", "", 200, "true")
		h.want("DELETE /v1/kv/a?cas=0", "", 200, "true")
		h.put("a", "v")
		h.want("DELETE /v1/kv/a?cas=0", "", 200, "false")
		h.want(fmt.Sprintf("DELETE /v1/kv/a?cas=%d", h.entry("a").ModifyIndex), "", 200, "true")
		h.put("a", "v")
		h.want("DELETE /v1/kv/a", "ignored", 200, "true")
		h.want("GET /v1/kv/a", "", 404, "")
	})
}

// Ensure that a tree is deleted by bytes, and all keys only by a request without a contradiction.
func TestKV_X17K31K32K40_DeleteTree(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, key := range []string{"r", "r/a", "r2", "s"} {
			h.put(key, "v")
		}
		for _, no := range []string{"False", "fALSE"} {
			if r := h.send("DELETE /v1/kv/r?recurse="+no, ""); r.code != 400 {
				t.Errorf("recurse=%s: %d", no, r.code)
			}
		}
		h.want("DELETE /v1/kv/r?recurse", "", 200, "true")
		h.want("DELETE /v1/kv/r?recurse=true", "", 200, "true")
		h.want("GET /v1/kv/?keys", "", 200, `["s"]`)
		h.want("DELETE /v1/kv/?recurse", "", 200, "true")
		h.want("GET /v1/kv/?keys", "", 200, "[]")
	})
}

func TestKV_H9K13K14K15K16K17_Acquire(t *testing.T) {
	run(t, nil, func(h *harness) {
		s1, s2 := h.session(nil).ID().String(), h.session(nil).ID().String()
		h.want("PUT /v1/kv/l?acquire="+s1+"&flags=3", "v", 200, "true")
		first := h.entry("l")
		if first.LockIndex != 1 || first.Session != s1 || first.Flags != 3 ||
			first.CreateIndex != first.ModifyIndex {
			t.Errorf("after the first: %+v", first)
		}
		h.want("PUT /v1/kv/l?acquire="+s1+"&flags=3", "v", 200, "true")
		if again := h.entry("l"); again.ModifyIndex != first.ModifyIndex {
			t.Error("the same again moved the index")
		}
		h.want("PUT /v1/kv/l?acquire="+s1, "", 200, "true")
		if e := h.entry("l"); e.LockIndex != 1 || e.Flags != 0 || e.Value != nil {
			t.Errorf("after another value: %+v", e)
		}
		h.want("PUT /v1/kv/l?acquire="+s2, "w", 200, "false")
		h.want("PUT /v1/kv/l?release="+s1, "", 200, "true")
		h.want("PUT /v1/kv/l?acquire="+s2, "w", 200, "true")
		if e := h.entry("l"); e.LockIndex != 2 || e.Session != s2 || string(e.Value) != "w" {
			t.Errorf("after the second grant: %+v", e)
		}
	})
}

// Ensure that a session ID is accepted in any case, and is stored in lower case.
func TestKV_X20K36_SessionInCapitals(t *testing.T) {
	run(t, nil, func(h *harness) {
		id := h.session(nil).ID().String()
		h.want("PUT /v1/kv/l?acquire="+strings.ToUpper(id), "", 200, "true")
		if e := h.entry("l"); e.Session != id {
			t.Errorf("stored as %q", e.Session)
		}
		h.want("PUT /v1/kv/l?release="+strings.ToUpper(id), "", 200, "true")
	})
}

func TestKV_H9K19K20K24K25_SessionsThatAreNone(t *testing.T) {
	run(t, nil, func(h *harness) {
		const unknown = "11111111-2222-3333-4444-555555555555"
		for _, session := range []string{unknown, "nope", "00000000-0000-0000-0000-000000000000"} {
			h.want("PUT /v1/kv/l?acquire="+session, "", 500,
				`raft apply failed: invalid session "`+session+`"`)
			h.want("PUT /v1/kv/l?release="+session, "", 200, "false")
		}
		h.want("PUT /v1/kv/l?acquire=", "", 500, "raft apply failed: missing session")
		h.want("PUT /v1/kv/l?release=", "", 500, "raft apply failed: missing session")
		long := strings.Repeat("k", lockd.MaxKeySize+1) // the key is checked first (K35)
		for _, call := range []string{"?acquire=", "?release="} {
			if r := h.send("PUT /v1/kv/"+long+call, ""); r.code != 400 {
				t.Errorf("a long key with %s: %d %.100s", call, r.code, r.body)
			}
			h.want("PUT /v1/kv/"+long[1:]+call, "", 500, "raft apply failed: missing session")
		}
	})
}

// Ensure that a release overwrites value and flags, as in Consul but not in the library.
func TestKV_K21K22K23_ReleaseOverwrites(t *testing.T) {
	run(t, nil, func(h *harness) {
		s := h.session(nil).ID().String()
		other := h.session(nil).ID().String()
		h.want("PUT /v1/kv/l?release="+s, "", 200, "false")
		h.want("PUT /v1/kv/l?acquire="+s+"&flags=1", "v", 200, "true")
		h.want("PUT /v1/kv/l?release="+other, "w", 200, "false")
		if e := h.entry("l"); string(e.Value) != "v" {
			t.Errorf("a refused release wrote %q", e.Value)
		}
		h.want("PUT /v1/kv/l?release="+s+"&flags=9", "rel", 200, "true")
		e := h.entry("l")
		if string(e.Value) != "rel" || e.Flags != 9 || e.Session != "" || e.LockIndex != 1 {
			t.Errorf("after the release: %+v", e)
		}
		h.want("PUT /v1/kv/l?release="+s, "", 200, "false")
	})
}

// Ensure that a delayed key is refused, even to an invalid session.
func TestKV_K18K35_DelayComesFirst(t *testing.T) {
	run(t, nil, func(h *harness) {
		s := h.session(&lockd.SessionOptions{LockDelay: 5 * time.Second})
		h.want("PUT /v1/kv/l?acquire="+s.ID().String(), "", 200, "true")
		h.must(h.db.EndSession(s.ID()))
		next := h.session(nil).ID().String()
		for _, session := range []string{next, "nope", ""} {
			h.want("PUT /v1/kv/l?acquire="+session, "", 200, "false")
		}
		h.advance(5 * time.Second)
		h.want("PUT /v1/kv/l?acquire="+next, "", 200, "true")
	})
}

// Ensure that an acquire and a read of its key tell the fence of a lock, and that the fence rises
// where a sequencer's LockIndex begins again.
func TestKV_G8X1_Fence(t *testing.T) {
	run(t, nil, func(h *harness) {
		const header = "X-Lockd-Fence"
		s := h.session(nil).ID().String()
		fence := func(target string) (fence uint64) {
			r := h.send(target, "v")
			if r.code != 200 || len(r.header.Values(header)) != 1 {
				t.Fatalf("%s: %d %s %v", target, r.code, r.body, r.header)
			}
			fence, err := strconv.ParseUint(r.header.Get(header), 10, 64)
			h.must(err)
			return fence
		}
		without := func(target string) {
			if r := h.send(target, "v"); r.code >= 500 || r.header.Values(header) != nil {
				t.Errorf("%s: %d %v", target, r.code, r.header)
			}
		}
		without("GET /v1/kv/l")
		first := fence("PUT /v1/kv/l?acquire=" + s)
		if e := h.entry("l"); e.LockIndex != 1 {
			t.Errorf("LockIndex is %d", e.LockIndex)
		}
		h.put("l", "w")
		for _, again := range []string{"PUT /v1/kv/l?acquire=" + s, "GET /v1/kv/l",
			"GET /v1/kv/l?raw", "GET /v1/kv/l?stale"} {
			if got := fence(again); got != first {
				t.Errorf("%s: %d, not %d", again, got, first)
			}
		}
		without("GET /v1/kv/l?recurse")
		without("GET /v1/kv/l?keys")
		without("PUT /v1/kv/l?acquire=" + h.session(nil).ID().String())
		without("PUT /v1/kv/l?release=" + s)
		without("GET /v1/kv/l")
		without("DELETE /v1/kv/l")
		second := fence("PUT /v1/kv/l?acquire=" + s)
		if e := h.entry("l"); e.LockIndex != 1 || second <= first {
			t.Errorf("LockIndex %d, fence %d after %d", e.LockIndex, second, first)
		}
		if e, _ := h.db.Get("l"); e.Fence != second {
			t.Errorf("the library says %d, not %d", e.Fence, second)
		}
	})
}

// Ensure that a refused lock names the obstacle, which a client must know before it waits.
func TestKV_X25_RefusalTellsWhy(t *testing.T) {
	run(t, nil, func(h *harness) {
		holder := h.session(&lockd.SessionOptions{Name: "db1", LockDelay: 5 * time.Second})
		acquire := func(s *lockd.Session, want string) {
			t.Helper()
			got := h.want("PUT /v1/kv/l?acquire="+s.ID().String(), "", 200, want)
			if values := got.header.Values("X-Lockd-Refusal"); (want == "true") != (values == nil) {
				t.Errorf("answer %s has %q", want, values)
			}
		}
		why := func(s *lockd.Session) string {
			return h.send("PUT /v1/kv/l?acquire="+s.ID().String(), "").header.Get("X-Lockd-Refusal")
		}
		next := h.session(nil)
		acquire(holder, "true")
		acquire(next, "false")
		h.advance(3 * time.Second)
		want := `held by "db1" (session ` + holder.ID().String() + ") for 3s"
		if got := why(next); got != want {
			t.Errorf("held: got %q, want %q", got, want)
		}
		h.must(h.db.EndSession(holder.ID()))
		h.advance(time.Second)
		if got := why(next); !strings.HasPrefix(got, "delayed for another 4s, until ") {
			t.Errorf("delayed: got %q", got)
		}
		h.advance(4 * time.Second)
		acquire(next, "true")
	})
}

// Ensure that the name of a holder does not make a header that is too long for a client: many take
// no more than 8 KiB of header.
func TestKV_X25_RefusalIsShort(t *testing.T) {
	run(t, nil, func(h *harness) {
		name := strings.Repeat("\x01é", lockd.MaxKeySize/3)
		holder := h.session(&lockd.SessionOptions{Name: name})
		h.yes("PUT /v1/kv/l?acquire="+holder.ID().String(), "")
		r := h.want("PUT /v1/kv/l?acquire="+h.session(nil).ID().String(), "", 200, "false")
		why := r.header.Get("X-Lockd-Refusal")
		if end := "(session " + holder.ID().String() + ") for 0s"; !strings.HasSuffix(why, end) ||
			!strings.HasPrefix(why, `held by "\x01é`) || len(why) > 1000 {
			t.Errorf("%d bytes: %.200q", len(why), why)
		}
	})
}

// Ensure that calls that wait in the library's queue are not overtaken over HTTP.
func TestKV_G9_AcquireRespectsTheQueue(t *testing.T) {
	run(t, nil, func(h *harness) {
		s, waiter := h.session(nil), h.session(nil)
		h.want("PUT /v1/kv/l?acquire="+s.ID().String(), "", 200, "true")
		locked := make(chan error, 1)
		go func() {
			_, err := waiter.Lock(h.t.Context(), "l", nil)
			locked <- err
		}()
		h.settle()
		h.want("PUT /v1/kv/l?release="+s.ID().String(), "last words", 200, "true")
		h.must(<-locked)
		if e := h.entry("l"); e.Session != waiter.ID().String() || string(e.Value) != "last words" {
			t.Errorf("after the release: %+v", e)
		}
	})
}

// Ensure that a free key that is promised to a call for several keys is refused over HTTP, except
// to the session whose lock that call waits for. Otherwise each would wait for the other.
func TestKV_G9_AcquirePassesACallForSeveral(t *testing.T) {
	run(t, nil, func(h *harness) {
		s, waiter, other := h.session(nil), h.session(nil), h.session(nil)
		h.want("PUT /v1/kv/a?acquire="+s.ID().String(), "", 200, "true")
		locked := make(chan error, 1)
		go func() {
			_, err := waiter.LockAll(h.t.Context(), []string{"a", "b"}, nil)
			locked <- err
		}()
		h.settle()
		h.want("PUT /v1/kv/b?acquire="+other.ID().String(), "", 200, "false")
		h.want("PUT /v1/kv/b?acquire="+s.ID().String(), "", 200, "true")
		h.want("PUT /v1/kv/b?release="+s.ID().String(), "", 200, "true")
		h.want("PUT /v1/kv/a?release="+s.ID().String(), "", 200, "true")
		h.must(<-locked)
	})
}

// Ensure that keys are decoded once, that no path is cleaned, and that nothing is redirected.
func TestKV_X12H2H3H4_KeysAreTakenAsTheyAre(t *testing.T) {
	run(t, nil, func(h *harness) {
		for path, key := range map[string]string{
			"pct%2541": "pct%41", "bad%25zz": "bad%zz", "a%2Fb": "a/b", "a+b": "a+b",
			"a%20b": "a b", "ü": "ü", "%C3%BC2": "ü2", "%FF": "\xff", "ds//b": "ds//b",
			"/lead": "/lead", "%2Flead2": "/lead2", "a/./b": "a/./b", "a/../b": "a/../b",
			"trail/": "trail/", "..": "..", "/": "/",
		} {
			h.want("PUT /v1/kv/"+path, "v", 200, "true")
			if _, exists := h.db.Get(key); !exists {
				t.Errorf("PUT /v1/kv/%s did not write key %q", path, key)
			}
			h.want("GET /v1/kv/"+path+"?raw", "", 200, "v")
			h.want("DELETE /v1/kv/"+path, "", 200, "true")
			if _, exists := h.db.Get(key); exists {
				t.Errorf("DELETE /v1/kv/%s left key %q", path, key)
			}
		}
		for _, path := range []string{"a%00b", "a%09b", "a%0Ab", "a%7Fb", "%C2%A0"} {
			h.want("PUT /v1/kv/"+path, "v", 400, "")
		}
		h.want("GET /v1/kv?keys", "", 200, "[]")
	})
}

func TestKV_H7_EmptyKey(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, target := range []string{
			"GET /v1/kv/", "GET /v1/kv", "PUT /v1/kv/", "DELETE /v1/kv/", "DELETE /v1/kv/?cas=1",
			"PUT /v1/kv/?cas=1&acquire=2", "GET /v1/kv/?raw",
		} {
			h.want(target, "", 400, "Bad request: Missing key name")
		}
	})
}

// Ensure that conflicting parameters are refused before any of them is looked at.
func TestKV_H8_ConflictingFlags(t *testing.T) {
	run(t, &consulapi.Options{MaxValueSize: 1}, func(h *harness) {
		h.want("PUT /v1/kv/a?release=b&acquire=a", "vv", 400,
			"Conflicting flags: acquire=a&release=b")
		h.want("PUT /v1/kv/a?cas=x&acquire=a&flags=zz", "", 400,
			"Conflicting flags: acquire=a&cas=x&flags=zz")
		h.want("DELETE /v1/kv/a?recurse&cas", "", 400, "Conflicting flags: cas=&recurse=")
	})
}

func TestKV_X30_BadNumbers(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, target := range []string{
			"PUT /v1/kv/a?flags=", "PUT /v1/kv/a?cas=", "DELETE /v1/kv/a?cas=",
		} {
			h.want(target+"zz", "", 500, `strconv.ParseUint: parsing "zz": invalid syntax`)
			h.want(target+"-1", "", 500, `strconv.ParseUint: parsing "-1": invalid syntax`)
			h.want(target, "", 500, `strconv.ParseUint: parsing "": invalid syntax`)
			h.want(target+"18446744073709551616", "", 500,
				`strconv.ParseUint: parsing "18446744073709551616": value out of range`)
		}
		h.want("GET /v1/kv/?keys", "", 200, "[]")
	})
}

func TestKV_H10I6_KeysAndSeparator(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, key := range []string{"s/a", "s/b/1", "s/b/2", "s/c", "s/c/", "s/d/e/f"} {
			h.put(key, "v")
		}
		for target, keys := range map[string]string{
			"s/?keys&separator=/":           `["s/a","s/b/","s/c","s/c/","s/d/"]`,
			"s/?keys&seperator=/":           `["s/a","s/b/","s/c","s/c/","s/d/"]`,
			"s?keys&separator=/":            `["s/"]`,
			"s/?keys&separator=b":           `["s/a","s/b","s/c","s/c/","s/d/e/f"]`,
			"s/b?keys&separator=":           `["s/b/1","s/b/2"]`,
			"s?keys&separator=&seperator=/": `["s/a","s/b/1","s/b/2","s/c","s/c/","s/d/e/f"]`,
			"s/b?keys=false&recurse&raw=":   `["s/b/1","s/b/2"]`,
		} {
			h.want("GET /v1/kv/"+target, "", 200, keys)
		}
		newest := h.entry("s/d/e/f").ModifyIndex
		if r := h.send("GET /v1/kv/s?keys&separator=/", ""); r.index() != newest {
			t.Errorf("index %d, not %d", r.index(), newest)
		}
	})
}

func TestKV_H12B15I3I10_NothingFound(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, target := range []string{"a", "a?recurse", "a?keys", "?recurse", "a?raw"} {
			r := h.want("GET /v1/kv/"+target, "", 404, "")
			if r.index() != 1 || r.header.Get("X-Consul-KnownLeader") != "true" ||
				r.header.Get("X-Consul-LastContact") != "0" || r.header.Get("Content-Type") != "" {
				t.Errorf("%s: headers are %v", target, r.header)
			}
		}
		if r := h.want("GET /v1/kv/?keys", "", 200, "[]"); r.index() != 1 {
			t.Errorf("index %d", r.index())
		}
	})
}

func TestKV_H17B15_WritesTellNoIndex(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, target := range []string{"PUT /v1/kv/a", "PUT /v1/kv/a?cas=1", "DELETE /v1/kv/a"} {
			r := h.send(target, "v")
			for _, name := range []string{"Index", "KnownLeader", "LastContact"} {
				if got := r.header.Get("X-Consul-" + name); got != "" {
					t.Errorf("%s: X-Consul-%s is %s", target, name, got)
				}
			}
		}
	})
}

func TestKV_H13_Raw(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "<script>")
		h.put("empty", "")
		r := h.want("GET /v1/kv/a?raw=0", "", 200, "<script>")
		for name, value := range map[string]string{
			"Content-Type": "text/plain", "X-Content-Type-Options": "nosniff",
			"Content-Security-Policy": "sandbox", "Content-Length": "8",
		} {
			if got := r.header.Get(name); got != value {
				t.Errorf("%s is %q, not %q", name, got, value)
			}
		}
		h.want("GET /v1/kv/empty?raw", "", 200, "")
		if r := h.send("GET /v1/kv/a?raw&recurse", ""); !strings.HasPrefix(r.body, "[{") {
			t.Errorf("raw with recurse: %q", r.body)
		}
	})
}

// chunked is a body whose length the client does not tell.
func chunked(body string) io.Reader { return struct{ io.Reader }{strings.NewReader(body)} }

// Ensure that a value as large as the limit is taken and one byte more is not, however it comes.
func TestKV_H15X16_ValueSize(t *testing.T) {
	run(t, nil, func(h *harness) {
		const limit = 512 << 10
		const see = "See https://www.consul.io/docs/agent/options.html#kv_max_value_size."
		large := strings.Repeat("x", limit)
		h.want("PUT /v1/kv/a", large, 200, "true")
		if r := h.sendAs(h.t.Context(), "PUT /v1/kv/b", chunked(large)); r.code != 200 {
			t.Errorf("chunked, at the limit: %d %s", r.code, r.body)
		}
		h.want("PUT /v1/kv/c", large+"x", 413,
			"Request body(524289 bytes) too large, max size: 524288 bytes. "+see)
		r := h.sendAs(h.t.Context(), "PUT /v1/kv/c", chunked(large+"x"))
		if r.code != http.StatusRequestEntityTooLarge ||
			r.body != "Request body too large, max size: 524288 bytes. "+see {
			t.Errorf("chunked, above the limit: %d %s", r.code, r.body)
		}
		limited := http.MaxBytesReader(nil, io.NopCloser(chunked("vv")), 1) // by the server
		if r := h.sendAs(h.t.Context(), "PUT /v1/kv/c", limited); r.code != 413 {
			t.Errorf("above the limit of the server: %d %s", r.code, r.body)
		}
		h.want("GET /v1/kv/?keys", "", 200, `["a","b"]`)
	})
}

// Ensure that a body that is a little too large is read to its end, so that its client gets to see
// the answer, and that a much larger body is not.
func TestKV_H15_RefusedBodyIsRead(t *testing.T) {
	run(t, nil, func(h *harness) {
		const limit = 512 << 10
		for size, left := range map[int]int{limit + 1: 0, 4 * limit: 3*limit - 1} {
			body := strings.NewReader(strings.Repeat("x", size))
			r := h.sendAs(h.t.Context(), "PUT /v1/kv/a", body)
			if r.code != http.StatusRequestEntityTooLarge || body.Len() != left {
				t.Errorf("%d bytes: got %d, %d left, want %d", size, r.code, body.Len(), left)
			}
		}
	})
}

// Ensure that a client that asks before it sends a body that is too large is told not to: reading
// from the body would ask for it.
func TestKV_H15_ExpectedBodyIsNotRead(t *testing.T) {
	run(t, nil, func(h *harness) {
		body := strings.NewReader(strings.Repeat("x", 512<<10+1))
		r := httptest.NewRequest("PUT", "/v1/kv/a", body)
		r.Header.Set("Expect", "100-continue")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusRequestEntityTooLarge || body.Len() != 512<<10+1 {
			t.Errorf("got %d, %d left", w.Code, body.Len())
		}
	})
}

// Ensure that a body that breaks off writes nothing.
func TestKV_G11_BodyThatBreaksOff(t *testing.T) {
	run(t, nil, func(h *harness) {
		body := io.MultiReader(strings.NewReader("half"), brokenReader{})
		if r := h.sendAs(h.t.Context(), "PUT /v1/kv/a", body); r.code != 400 {
			t.Errorf("%d %s", r.code, r.body)
		}
		h.want("GET /v1/kv/a", "", 404, "")
	})
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestKV_H11_List(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("p/a", "1")
		h.put("p/b", "2")
		h.put("q", "3")
		entries := decode[[]kv](h, h.send("GET /v1/kv/p/?recurse=false", ""))
		if len(entries) != 2 || entries[0].Key != "p/a" || string(entries[1].Value) != "2" {
			t.Errorf("%+v", entries)
		}
		if r := h.send("GET /v1/kv/p/?recurse", ""); r.index() != entries[1].ModifyIndex ||
			!strings.Contains(r.body, base64.StdEncoding.EncodeToString([]byte("2"))) {
			t.Errorf("index %d: %s", r.index(), r.body)
		}
	})
}

// Ensure that a key that is too long is refused as a mistake of the client.
func TestKV_ErrInvalid(t *testing.T) {
	run(t, nil, func(h *harness) {
		long := strings.Repeat("x", lockd.MaxKeySize)
		h.put(long, "v")
		for _, target := range []string{
			"PUT /v1/kv/x", "DELETE /v1/kv/x", "PUT /v1/kv/x?cas=0", "DELETE /v1/kv/x?cas=1",
			"PUT /v1/kv/x?acquire=no", "PUT /v1/kv/x?release=no",
		} {
			if r := h.send(strings.Replace(target, "x", long+"x", 1), ""); r.code != 400 ||
				!strings.HasPrefix(r.body, "Bad request: ") {
				t.Errorf("%s…: %d %s", target, r.code, r.body)
			}
		}
		h.want("GET /v1/kv/x"+long, "", 404, "")
	})
}
