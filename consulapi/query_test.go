package consulapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd"
)

// queryInfo is a prepared query as a client sees it.
type queryInfo struct {
	ID, Name, Session string
	Service           struct {
		Service     string
		OnlyPassing bool
		Tags        []string
	}
	DNS                      struct{ TTL string }
	CreateIndex, ModifyIndex uint64
}

// prepare makes a query, which must succeed, and returns its ID.
func (h *harness) prepare(body string) string {
	h.t.Helper()
	return decode[struct{ ID string }](h, h.send("POST /v1/query", body)).ID
}

// execute runs a query, and returns the services that it finds, in order.
func (h *harness) execute(name string) string {
	h.t.Helper()
	answer := decode[struct {
		Service, Datacenter string
		Nodes               []struct {
			Node    struct{ Node string }
			Service struct{ ID string }
			Checks  []checkInfo
		}
	}](h, h.send("GET /v1/query/"+name+"/execute", ""))
	var found []string
	for _, i := range answer.Nodes {
		found = append(found, i.Node.Node+"/"+i.Service.ID)
	}
	slices.Sort(found)
	return answer.Service + "@" + answer.Datacenter + ": " + strings.Join(found, " ")
}

// Ensure that what a query finds comes with Consul's members of a read.
func TestQuery_ExecuteHasTheMembersOfARead(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.prepare(`{"Name":"q","Service":{"Service":"web"}}`)
		h.want("GET /v1/query/q/execute?stale", "", 200, `{"Service":"web","Nodes":[],`+
			`"DNS":{"TTL":""},"Datacenter":"dc1","Failovers":0,"Index":1,"LastContact":0,`+
			`"KnownLeader":true,"ConsistencyLevel":"stale","NotModified":false,"Backend":0,`+
			`"ResultsFilteredByACLs":false}`)
	})
}

// Ensure that a query is kept as prepared, and can be listed, changed and deleted.
func TestQuery_Kept(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("GET /v1/query", "", 200, "[]")
		h.want("DELETE /v1/query/"+h.prepare(`{"Name":"q","Service":{"Service":"web"},
			"DNS":{"TTL":"0s"}}`), "", 200, "")
		id := h.prepare(`{"Name":"q","Service":{"Service":"web","OnlyPassing":true,
			"Tags":["a"]},"DNS":{"TTL":"10s"}}`)
		list := decode[[]queryInfo](h, h.send("GET /v1/query", ""))
		one := decode[[]queryInfo](h, h.send("GET /v1/query/"+id, ""))
		if len(list) != 1 || len(one) != 1 || fmt.Sprint(list) != fmt.Sprint(one) ||
			one[0].ID != id || one[0].Name != "q" || one[0].Service.Service != "web" ||
			!one[0].Service.OnlyPassing || one[0].DNS.TTL != "10s" || one[0].CreateIndex < 2 {
			t.Errorf("%+v %+v", list, one)
		}
		h.want("PUT /v1/query/"+id, `{"Name":"q","Service":{"Service":"db"}}`, 200, "")
		now := decode[[]queryInfo](h, h.send("GET /v1/query/"+id, ""))[0]
		if now.Service.Service != "db" || now.CreateIndex != one[0].CreateIndex ||
			now.ModifyIndex <= one[0].ModifyIndex {
			t.Errorf("%+v", now)
		}
		h.want("DELETE /v1/query/"+id, "", 200, "")
		h.want("GET /v1/query/"+id, "", 404, "Query not found")
		h.want(fmt.Sprintf("GET /v1/query/%s?index=%d", id, h.db.Snapshot().Index()), "", 404,
			"Query not found") // at once
		h.want("GET /v1/query/q/execute", "", 404, "Query not found")
		gone := "Cannot modify non-existent prepared query: '" + id + "'"
		h.want("DELETE /v1/query/"+id, "", 500, gone)
		h.want("PUT /v1/query/"+id, `{"Name":"q","Service":{"Service":"db"}}`, 500, gone)
	})
}

// Ensure that an invalid query is refused with the reason, and that nothing of it is kept.
func TestQuery_Refused(t *testing.T) {
	run(t, nil, func(h *harness) {
		const failed = "raft apply failed: "
		const nobody = "00000000-0000-0000-0000-000000000000"
		id := h.prepare(`{"Name":"taken","Service":{"Service":"web"}}`)
		for body, want := range map[string]struct {
			code int
			text string
		}{
			`{"Name":"q"}`: {
				500, "Invalid prepared query: Must provide a Service name to query"},
			`{"ID":"` + uuidOfWeb1 + `","Service":{"Service":"web"}}`: {
				500, "ID must be empty when creating a new prepared query"},
			`{"Name":"taken","Service":{"Service":"web"}}`: {
				500, failed + "name 'taken' aliases an existing query name"},
			`{"Name":"` + id + `","Service":{"Service":"web"}}`: {
				500, failed + "name '" + id + "' aliases an existing query ID"},
			`{"Session":"` + uuidOfWeb1 + `","Service":{"Service":"web"}}`: {
				500, failed + `invalid session "` + uuidOfWeb1 + `"`},
			`{"Session":"` + nobody + `","Service":{"Service":"web"}}`: {
				500, failed + `invalid session "` + nobody + `"`},
			`{"Session":"no","Service":{"Service":"web"}}`: {
				500, failed + `invalid session "no"`},
			`{"Name":"q","Service":{"Service":"web","Failover":{"NearestN":-1}},` +
				`"DNS":{"TTL":"10"}}`: {
				500, "Invalid prepared query: Bad NearestN '-1', must be >= 0"},
			`{"Name":"q","Service":{"Service":"web"},"DNS":{"TTL":"10"}}`: {
				500, `Invalid prepared query: Bad DNS TTL '10': ` +
					`time: missing unit in duration "10"`},
			`{"Name":"q","Service":{"Service":"web"},"DNS":{"TTL":"-1s"}}`: {
				500, "Invalid prepared query: DNS TTL '-1000000000', must be >=0"},
			`{"Template":{"Type":"name_prefix_match"},"Service":{"Service":"web"}}`: {
				400, "Bad request: lockd has no templates of queries"},
		} {
			h.want("POST /v1/query", body, want.code, want.text)
		}
		if list := decode[[]queryInfo](h, h.send("GET /v1/query", "")); len(list) != 1 {
			t.Errorf("%+v", list)
		}
	})
}

// Ensure that a query needs a name to be found by, or a session to die with, also after a change.
func TestQuery_NeedsNameOrSession(t *testing.T) {
	run(t, nil, func(h *harness) {
		const unbound = "Invalid prepared query: Must be bound to a session"
		s := h.create("")
		id := h.prepare(`{"Session":"` + s.ID + `","Service":{"Service":"web"}}`)
		h.prepare(`{"Session":"` + s.ID + `","Service":{"Service":"web"}}`) // neither has a name
		h.want("GET /v1/query//execute", "", 404, "Query not found")
		before := h.db.Snapshot().Index()
		for _, body := range []string{
			`{"Service":{"Service":"web"}}`, `{"Name":"","Session":"","Service":{"Service":"w"}}`,
			`{}`, `{"Template":{"Regexp":"x"},"Service":{"Service":"web"}}`,
		} {
			h.want("POST /v1/query", body, 500, unbound)
			h.want("PUT /v1/query/"+id, body, 500, unbound)
		}
		const eof = "Bad request: Request decode failed: EOF"
		h.want("POST /v1/query", ``, 400, eof)
		h.want("PUT /v1/query/"+id, ``, 400, eof)
		if after := h.db.Snapshot().Index(); after != before {
			t.Errorf("the index went from %d to %d", before, after)
		}
		h.want("PUT /v1/query/"+id, `{"Name":"q","Service":{"Service":"web"}}`, 200, "")
		h.want("PUT /v1/query/"+id, `{"Name":"q","Session":"`+s.ID+`","Service":{"Service":"web"}}`,
			200, "")
		// An error about the ID comes first.
		h.want("POST /v1/query", `{"ID":"`+id+`"}`, 500,
			"ID must be empty when creating a new prepared query")
		h.want("PUT /v1/query/"+uuidOfWeb1, `{}`, 500,
			"Cannot modify non-existent prepared query: '"+uuidOfWeb1+"'")
	})
}

// Ensure that a query dies with the session that it is attached to, in the same step, and that a
// query without a session does not.
func TestQuery_S31_DiesWithItsSession(t *testing.T) {
	run(t, nil, func(h *harness) {
		s := h.create("")
		lasting := h.prepare(`{"Name":"lasting","Service":{"Service":"web"}}`)
		dying := h.prepare(`{"Name":"q","Session":"` + strings.ToUpper(s.ID) +
			`","Service":{"Service":"web"}}`)
		freed := h.prepare(`{"Session":"` + s.ID + `","Service":{"Service":"web"}}`)
		h.want("PUT /v1/query/"+freed, `{"Name":"freed","Service":{"Service":"web"}}`, 200, "")
		h.want("PUT /v1/kv/k?acquire="+s.ID, "v", 200, "true")
		r := h.send("GET /v1/query/"+dying, "")
		if q := decode[[]queryInfo](h, r)[0]; q.Session != s.ID || q.Name != "q" { // X20
			t.Errorf("%+v", q)
		}
		index := r.index()
		waiting := h.blocked(fmt.Sprintf("GET /v1/query/%s?index=%d", dying, index))
		h.waits(waiting)
		h.want("PUT /v1/session/destroy/"+s.ID, "", 200, "true")

		r = h.answered(waiting)
		if r.code != 404 || r.index() != h.entry("k").ModifyIndex {
			t.Errorf("%d %s at %d, the key at %d", r.code, r.body, r.index(),
				h.entry("k").ModifyIndex)
		}
		h.want("GET /v1/query/q/execute", "", 404, "Query not found")
		list := decode[[]queryInfo](h, h.send("GET /v1/query", ""))
		left := []string{}
		for _, q := range list {
			left = append(left, q.ID)
		}
		want := []string{lasting, freed}
		slices.Sort(want)
		if !slices.Equal(left, want) {
			t.Errorf("left are %q, not %q", left, want)
		}
	})
}

// Ensure that a read of queries has the headers of a read.
func TestQuery_B15_Headers(t *testing.T) {
	run(t, nil, func(h *harness) {
		id := h.prepare(`{"Name":"q","Service":{"Service":"web"}}`)
		for path, index := range map[string]uint64{
			"/" + id + "?stale": h.db.Snapshot().Index(), "/q/execute?stale": 1,
		} {
			r := h.send("GET /v1/query"+path, "")
			if r.index() != index || r.header.Get("X-Consul-KnownLeader") != "true" ||
				r.header.Get("X-Consul-LastContact") != "0" ||
				r.header.Get("X-Consul-Effective-Consistency") != "stale" {
				t.Errorf("%s: %d %v", path, r.code, r.header)
			}
		}
	})
}

// Ensure that the name of a query is found in any case.
func TestQuery_NamesInAnyCase(t *testing.T) {
	run(t, nil, func(h *harness) {
		id := h.prepare(`{"Name":"One","Service":{"Service":"web"}}`)
		for _, name := range []string{"one", "ONE", strings.ToUpper(id)} {
			if got := h.execute(name); got != "web@dc1: " {
				t.Errorf("%s: %s", name, got)
			}
		}
		h.want("POST /v1/query", `{"Name":"oNE","Service":{"Service":"web"}}`, 500,
			"raft apply failed: name 'oNE' aliases an existing query name")
	})
}

// Ensure that a query finds the healthy instances of its service, by ID and by name.
func TestQuery_Executes(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.registerWeb() // web1 has a warning, web2 is critical
		for body, want := range map[string]string{
			`{"Service":"web"}`:                         "web@dc1: web1/w1",
			`{"Service":"WEB","Tags":["A"]}`:            "WEB@dc1: web1/w1",
			`{"Service":"web","Tags":["c"]}`:            "web@dc1: ",
			`{"Service":"web","Tags":["!a"]}`:           "web@dc1: ",
			`{"Service":"web","Tags":["!c"]}`:           "web@dc1: web1/w1",
			`{"Service":"web","NodeMeta":{"rack":"7"}}`: "web@dc1: web1/w1",
			`{"Service":"web","NodeMeta":{"rack":"8"}}`: "web@dc1: ",
			`{"Service":"web","ServiceMeta":{"v":"1"}}`: "web@dc1: web1/w1",
			`{"Service":"web","ServiceMeta":{"v":"2"}}`: "web@dc1: ",
			`{"Service":"web","ServiceMeta":{"w":""}}`:  "web@dc1: ", // it has no w
			`{"Service":"web","OnlyPassing":true}`:      "web@dc1: ",
			`{"Service":"web","IgnoreCheckIDs":["up"]}`: "web@dc1: web1/w1 web2/web",
			`{"Service":"web","OnlyPassing":true,"IgnoreCheckIDs":["disk"]}`: "" +
				"web@dc1: web1/w1",
			`{"Service":"nothing"}`: "nothing@dc1: ",
		} {
			id := h.prepare(`{"Name":"q","Service":` + body + `}`)
			for _, name := range []string{id, "q"} {
				if got := h.execute(name); got != want {
					t.Errorf("%s: %s", body, got)
				}
			}
			h.want("DELETE /v1/query/"+id, "", 200, "")
		}
		h.prepare(`{"Name":"all","Service":{"Service":"web","IgnoreCheckIDs":["up"]}}`)
		for limit, want := range map[int]int{-1: 2, 0: 2, 1: 1, 2: 2, 3: 2} {
			got := decode[struct{ Nodes []any }](h,
				h.send(fmt.Sprintf("GET /v1/query/all/execute?limit=%d", limit), ""))
			if len(got.Nodes) != want {
				t.Errorf("limit %d: %d instances", limit, len(got.Nodes))
			}
		}
		if r := h.send("GET /v1/query/nobody/execute?limit=x", ""); r.code != 500 ||
			!strings.HasPrefix(r.body, "Bad limit: ") {
			t.Errorf("%d %s", r.code, r.body)
		}
	})
}

// Ensure that any instance may come first, so that the clients of a service are spread over it.
func TestQuery_AnyOrder(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.registerWeb()
		h.prepare(`{"Name":"all","Service":{"Service":"web","IgnoreCheckIDs":["up"]}}`)
		first := make(map[string]bool)
		for range 100 { // the same one by chance: once in 2^99 runs
			answer := decode[struct {
				Nodes []struct{ Node struct{ Node string } }
			}](h, h.send("GET /v1/query/all/execute?limit=1", ""))
			first[answer.Nodes[0].Node.Node] = true
		}
		if len(first) != 2 {
			t.Errorf("first came %v", first)
		}
	})
}

// Ensure that a query is executed by a GET only, and that any other method changes nothing.
func TestQuery_H1_Execute(t *testing.T) {
	run(t, nil, func(h *harness) {
		id := h.prepare(`{"Name":"q","Service":{"Service":"web"}}`)
		before := h.db.Snapshot().Index()
		for _, method := range []string{"PUT", "DELETE", "POST", "HEAD", "OPTIONS"} {
			code, text := 405, "method "+method+" not allowed"
			if method == "OPTIONS" {
				code, text = 200, ""
			}
			for _, of := range []string{id, ""} {
				r := h.want(method+" /v1/query/"+of+"/execute", `{"Name":"r"}`, code, text)
				if got := r.header.Get("Allow"); got != "OPTIONS,GET" {
					t.Errorf("%s of %q: Allow is %q", method, of, got)
				}
			}
		}
		if after := h.db.Snapshot().Index(); after != before {
			t.Errorf("the index went from %d to %d", before, after)
		}
	})
}

// Ensure that a query keeps its CreateIndex whatever is changed of it, its session included.
func TestQuery_KeepsItsCreateIndex(t *testing.T) {
	run(t, nil, func(h *harness) {
		a, b := h.create("").ID, h.create("").ID
		id := h.prepare(`{"Name":"q","Service":{"Service":"web"},"CreateIndex":1,"ModifyIndex":1}`)
		get := func() queryInfo {
			return decode[[]queryInfo](h, h.send("GET /v1/query/"+id, ""))[0]
		}
		made := get()
		if made.CreateIndex != made.ModifyIndex || made.CreateIndex == 1 {
			t.Errorf("%+v", made)
		}
		for i, session := range []string{a, a, b, b, "", "", a} {
			before := get()
			h.want("PUT /v1/query/"+id, fmt.Sprintf(
				`{"Name":"q%d","Session":%q,"Service":{"Service":"web"}}`, i, session), 200, "")
			now := get()
			if now.CreateIndex != made.CreateIndex || now.ModifyIndex <= before.ModifyIndex ||
				now.Session != session {
				t.Errorf("step %d: %+v, made as %+v", i, now, made)
			}
		}
	})
}

// Ensure that attachments of the program that only look like queries are no queries.
func TestQuery_OtherAttachments(t *testing.T) {
	run(t, nil, func(h *harness) {
		const name = "11111111-2222-4333-8444-555555555555"
		h.must(h.db.Update(func(tx *lockd.Txn) error {
			for id, value := range map[string]string{
				"": "?", "other": "?", name: "?", "object": "{}", "foreign": `{"ID":"other"}`,
			} {
				err := tx.Catalog().AttachUnowned("consul.query/"+id, []byte(value))
				if err != nil {
					return err
				}
			}
			return nil
		}))
		h.want("GET /v1/query", "", 200, "[]")
		h.want("GET /v1/query/"+name, "", 404, "Query not found")
		h.want("GET /v1/query/other/execute", "", 404, "Query not found")
		gone := "Cannot modify non-existent prepared query: '" + name + "'"
		h.want("PUT /v1/query/"+name, `{"Name":"q","Service":{"Service":"web"}}`, 500, gone)
		h.want("DELETE /v1/query/"+name, "", 500, gone)
		h.prepare(`{"Name":"q","Service":{"Service":"web"}}`)
		if got := h.execute("q"); got != "web@dc1: " {
			t.Error(got)
		}
	})
}
