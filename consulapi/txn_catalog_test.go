package consulapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// Ensure that nodes, services and checks are shown as Consul shows them.
func TestTxnCatalog_T13T15_JSON(t *testing.T) {
	run(t, nil, func(h *harness) {
		r := h.send("PUT /v1/txn", `[
			{"Node":{"Verb":"set","Node":{"ID":"`+uuidOfWeb1+`","Node":"foo","Address":"2.2.2.2",
				"Datacenter":"dc1","TaggedAddresses":null,"Meta":{"m":"1"},"Partition":""}}},
			{"Service":{"Verb":"set","Node":"foo","Service":{"ID":"foo1","Service":"web",
				"Port":80,"Tags":["t"],"Weights":{"Passing":1},"Proxy":null,"Connect":null}}},
			{"Check":{"Verb":"set","Check":{"Node":"foo","CheckID":"bar","Status":"passing",
				"ServiceID":"foo1","Definition":{"TCP":"x","Interval":"5s","Header":null,
				"HTTP":""},"ExposedPort":0}}},
			{"Node":{"Verb":"get","Node":{"Node":"local"}}}]`)
		if r.code != 200 {
			t.Fatal(r.body)
		}
		state := h.db.Snapshot()
		local, _ := state.Catalog().Node("local")
		want := fmt.Sprintf(`{"Results":[{"Node":{"ID":"`+uuidOfWeb1+`","Node":"foo",`+
			`"Address":"2.2.2.2","Datacenter":"dc1","TaggedAddresses":null,"Meta":{"m":"1"},`+
			`"CreateIndex":%d,`+
			`"ModifyIndex":%[1]d}},{"Service":{"ID":"foo1","Service":"web","Tags":["t"],`+
			`"Address":"","Meta":null,"Port":80,"Weights":{"Passing":1,"Warning":1},`+
			`"EnableTagOverride":false,"Proxy":{},"Connect":{},"CreateIndex":%[1]d,`+
			`"ModifyIndex":%[1]d}},{"Check":{"Node":"foo","CheckID":"bar","Name":"",`+
			`"Status":"passing","Notes":"","Output":"","ServiceID":"foo1","ServiceName":"web",`+
			`"ServiceTags":["t"],"Type":"tcp","Interval":"","Timeout":"","ExposedPort":0,`+
			`"Definition":{"Interval":"5s","TCP":"x"},`+
			`"CreateIndex":%[1]d,"ModifyIndex":%[1]d}},{"Node":{"ID":"%[2]s",`+
			`"Node":"local","Address":"127.0.0.1","Datacenter":"dc1","TaggedAddresses":{`+
			`"lan":"127.0.0.1","lan_ipv4":"127.0.0.1","wan":"127.0.0.1",`+
			`"wan_ipv4":"127.0.0.1"},"Meta":{"consul-network-segment":""},"CreateIndex":%[3]d,`+
			`"ModifyIndex":%[4]d}}],"Errors":null}`,
			state.Index(), local.ID, local.CreateIndex, local.ModifyIndex)
		if r.body != want {
			t.Errorf("%s, not\n%s", r.body, want)
		}
	})
}

func TestTxnCatalog_T13_Verbs(t *testing.T) {
	run(t, nil, func(h *harness) {
		node := func(verb string, index uint64) string {
			return fmt.Sprintf(
				`{"Node":{"Verb":%q,"Node":{"Node":"n","ModifyIndex":%d}}}`, verb, index)
		}
		service := func(verb string, index uint64) string {
			return fmt.Sprintf(`{"Service":{"Verb":%q,"Node":"n","Service":`+
				`{"Service":"s","Port":%[2]d,"ModifyIndex":%[2]d}}}`, verb, index)
		}
		check := func(verb string, index uint64) string {
			return fmt.Sprintf(`{"Check":{"Verb":%q,"Check":`+
				`{"Node":"n","Name":"c","ModifyIndex":%[2]d,"Output":"%[2]d"}}}`, verb, index)
		}
		h.refuses([]string{service("set", 0), check("set", 0)},
			"0: Missing node registration", "1: Missing node registration")
		h.refuses([]string{node("get", 0), service("get", 0), check("get", 0), node("cas", 9),
			service("delete-cas", 9), check("delete-cas", 0), node("x", 0), service("", 0),
			check("list", 0)},
			`0: node "n" doesn't exist`, `1: service "s" on node "n" doesn't exist`,
			`2: check "c" on node "n" doesn't exist`, `3: failed to set node "n", index is stale`,
			`4: failed to delete service "s" on node "n", index is stale`,
			`5: failed to delete check "c" on node "n", index is stale`,
			`6: unknown Node verb "x"`, `7: unknown Service verb ""`,
			`8: unknown Check verb "list"`)
		made := h.txn(node("cas", 0), service("cas", 0), check("cas", 0), check("get", 0)).Results
		if len(made) != 4 || made[0].Node.Node != "n" || made[1].Service.ID != "s" ||
			made[3].Check.Status != "critical" {
			t.Fatalf("%+v", made)
		}
		index := made[1].Service.ModifyIndex
		h.refuses([]string{node("cas", 0), service("cas", index-1), check("cas", index+1),
			node("delete-cas", index+1), service("delete-cas", 0), check("delete-cas", index-1)},
			`0: failed to set node "n", index is stale`,
			`1: failed to set service "s" on node "n", index is stale`,
			`2: failed to set check "c" on node "n", index is stale`,
			`3: failed to delete node "n", index is stale`,
			`4: failed to delete service "s" on node "n", index is stale`,
			`5: failed to delete check "c" on node "n", index is stale`)
		more := h.txn(service("cas", index), check("cas", index)).Results
		if more[0].Service.Port != int(index) || more[1].Check.Output != fmt.Sprint(index) {
			t.Fatalf("%+v", more)
		}
		h.txn(check("delete", 0), service("delete-cas", more[0].Service.ModifyIndex),
			node("delete", 0), node("delete", 0))
		if _, left := h.db.Snapshot().Catalog().Node("n"); left {
			t.Error("the node is left")
		}
		h.refuses([]string{`{"Check":{"Verb":"set","Check":` +
			`{"Node":"local","Name":"c","ServiceID":"s"}}}`}, "0: Missing service registration")
		bad := func(verb string) string {
			return strings.Replace(check(verb, 0), `"Name"`, `"Status":"fine","Name"`, 1)
		}
		h.refuses([]string{bad("set"), bad("cas")},
			`0: Invalid check status "fine"`, `1: Invalid check status "fine"`)
		h.refuses([]string{bad("get"), `{"Check":{"Verb":"get","Check":{"Node":"n"}}}`},
			`0: check "c" on node "n" doesn't exist`, `1: check "" on node "n" doesn't exist`)
		h.txn(bad("delete"), `{"Service":{"Verb":"delete","Node":"n","Service":{}}}`)
		r := h.send("PUT /v1/txn", `[{"Node":{"Verb":"get","Node":{"Bogus":1}}}]`)
		if r.code != 400 || !strings.Contains(r.body, `unknown field "Bogus"`) {
			t.Errorf("%d %s", r.code, r.body)
		}
	})
}

// Ensure that errors of the operations themselves are reported alone, in Consul's words.
func TestTxnCatalog_T9N1_RefusedFirst(t *testing.T) {
	run(t, nil, func(h *harness) {
		var ops, errs []string
		for _, test := range []struct{ op, what string }{
			{`{"Node":{"Verb":"set","Node":{"Address":"10.0.0.1"}}}`, "Must provide node"},
			{`{"Node":{"Verb":"delete","Node":{}}}`, "Must provide node"},
			{`{"Node":{"Verb":"cas","Node":{"Node":"n","ID":"bad"}}}`,
				"Bad node ID: invalid UUID length: 3"},
			{`{"Service":{"Verb":"set","Node":"local","Service":{"ID":"s"}}}`,
				"Must provide service name with ID"},
			{`{"Service":{"Verb":"cas","Node":"local","Service":{}}}`,
				"Must provide service name"},
			{`{"Service":{"Verb":"set","Node":"local","Service":{"Service":"s",` +
				`"Address":"::"}}}`, "Invalid service address"},
			{`{"Check":{"Verb":"set","Check":{"Node":"local"}}}`, "Must provide check ID or name"},
			{`{"Service":{"Verb":"delete","Node":"local","Service":{"ID":"s"}}}`,
				"Must provide service name with ID"},
			{`{"Service":{"Verb":"delete-cas","Node":"local","Service":{"ID":"s"}}}`,
				"Must provide service name with ID"},
			{`{"Node":{"Verb":"x","Node":{}}}`, "Must provide node"},
			{`{"Check":{"Verb":"set","Check":{"Node":"local","Name":"c","Status":"fine"}}}`,
				`Invalid check status "fine"`},
		} {
			errs = append(errs, fmt.Sprintf("%d: %s", len(ops), test.what))
			ops = append(ops, test.op)
		}
		h.refuses(append(ops, op("get", "none", "")), errs...)
	})
}

// Ensure that a get finds a node by the ID that is sent, also under another name, and also a node
// that the same transaction has made.
func TestTxnCatalog_T13_NodeByID(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/catalog/register",
			`{"Node":"n","Address":"10.0.0.1","ID":"`+uuidOfWeb1+`"}`, 200, "true")
		get := func(name, id string) string {
			return `{"Node":{"Verb":"get","Node":{"Node":"` + name + `","ID":"` + id + `"}}}`
		}
		const other = "40e4a748-2192-161a-0510-9bf59fe950b6"
		made := h.txn(get("n", uuidOfWeb1), get("", strings.ToUpper(uuidOfWeb1)),
			get("other", uuidOfWeb1), `{"Node":{"Verb":"set","Node":{"Node":"m","ID":"`+other+
				`"}}}`, get("m", other)).Results
		for i, want := range []string{"n", "n", "n", "m", "m"} {
			if got := made[i].Node.Node; got != want {
				t.Errorf("result %d is %s", i, got)
			}
		}
		h.refuses([]string{get("n", nobodysID), get("", nobodysID),
			`{"Node":{"Verb":"delete","Node":{"Node":"n"}}}`, get("n", uuidOfWeb1)},
			`0: node "n" doesn't exist`, `1: node "" doesn't exist`,
			`3: node "n" doesn't exist`)
		h.put("k", "v") // the newest state has not been read yet
		if r := h.send("PUT /v1/txn", "["+get("n", nobodysID)+"]"); r.code != 409 {
			t.Errorf("%d %s", r.code, r.body)
		}
	})
}

// Ensure that a get by an ID alone finds the node that has the ID at that step of the transaction.
func TestTxnCatalog_T13T7_NodeByIDAlone(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/catalog/register",
			`{"Node":"n","Address":"10.0.0.1","ID":"`+uuidOfWeb1+`"}`, 200, "true")
		do := func(verb, name, id string) string {
			return fmt.Sprintf(`{"Node":{"Verb":%q,"Node":{"Node":%q,"ID":%q}}}`, verb, name, id)
		}
		const other = "40e4a748-2192-161a-0510-9bf59fe950b6"
		made := h.txn(
			do("set", "renamed", strings.ToUpper(uuidOfWeb1)), do("get", "", uuidOfWeb1),
			do("cas", "made", other), do("get", "", other), do("set", "again", uuidOfWeb1),
			op("delete", "k", ""), do("get", "renamed", uuidOfWeb1),
		).Results
		for i, want := range []string{"renamed", "renamed", "made", "made", "again", "again"} {
			if got := made[i].Node.Node; got != want {
				t.Errorf("result %d is %s, not %s", i, got, want)
			}
		}
		h.refuses([]string{do("get", "", uuidOfWeb1), do("delete", "again", ""),
			do("get", "", uuidOfWeb1), do("get", "", nobodysID), do("set", "x", nobodysID)},
			`2: node "" doesn't exist`, `3: node "" doesn't exist`)
	})
}

// Ensure that a node is found by each form of its ID that it can be registered with.
func TestTxnCatalog_T13_NodeByIDInAnyForm(t *testing.T) {
	run(t, nil, func(h *harness) {
		bare := strings.ReplaceAll(uuidOfWeb1, "-", "")
		for _, id := range []string{uuidOfWeb1, strings.ToUpper(uuidOfWeb1), bare,
			"{" + uuidOfWeb1 + "}", "urn:uuid:" + uuidOfWeb1} {
			h.want("PUT /v1/catalog/register",
				`{"Node":"n","Address":"10.0.0.1","ID":"`+id+`"}`, 200, "true")
			made := h.txn(`{"Node":{"Verb":"get","Node":{"ID":"` + id + `"}}}`).Results
			if len(made) != 1 || made[0].Node.Node != "n" {
				t.Errorf("got by %q: %v", id, made)
			}
		}
	})
}

// Ensure that a node that is set without an ID keeps the one that it has.
func TestTxnCatalog_N13N1_NodeKeepsItsID(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.registerWeb()
		for _, verb := range []string{"set", "cas"} {
			now, _ := h.db.Snapshot().Catalog().Node("web1")
			made := h.txn(fmt.Sprintf(`{"Node":{"Verb":%q,"Node":{"Node":"WEB1","Address":%[1]q,
				"ModifyIndex":%d}}}`, verb, now.ModifyIndex)).Results
			now, _ = h.db.Snapshot().Catalog().Node("web1")
			if now.ID != uuidOfWeb1 || now.Name != "WEB1" || now.Address != verb ||
				made[0].Node.Node != "WEB1" {
				t.Errorf("%s: %+v, shown as %+v", verb, now, made[0].Node)
			}
		}
		now, _ := h.db.Snapshot().Catalog().Node("web1")
		h.txn(fmt.Sprintf(`{"Node":{"Verb":"cas","Node":{"Node":"web1","ID":%q,
			"ModifyIndex":%d}}}`, nobodysID, now.ModifyIndex))
		if now, _ = h.db.Snapshot().Catalog().Node("web1"); now.ID != nobodysID {
			t.Errorf("with another ID: %+v", now)
		}
	})
}

// nobodysID is an ID that no node has.
const nobodysID = "40e4a748-2192-161a-0510-000000000000"

// Ensure that any verb of the catalog except get counts as a write, known or not.
func TestTxnCatalog_T11_UnknownVerbs(t *testing.T) {
	run(t, nil, func(h *harness) {
		for _, op := range []string{
			`{"Node":{"Verb":"x"}}`, `{"Service":{"Verb":"Get"}}`, `{"Check":{"Verb":""}}`,
		} {
			r := h.send("PUT /v1/txn", "["+op+"]")
			if r.code != 409 || strings.Contains(r.body, "KnownLeader") ||
				r.header.Get("X-Consul-KnownLeader") != "" {
				t.Errorf("%s: %d %s %v", op, r.code, r.body, r.header)
			}
		}
	})
}

// Ensure that the first member of an operation counts, and the others are not even looked at.
func TestTxnCatalog_T1_FirstMemberCounts(t *testing.T) {
	run(t, nil, func(h *harness) {
		made := h.txn(`{"Check":{"Verb":"x"},"Node":{"Verb":"x"},` +
			`"KV":{"Verb":"set","Key":"a"}}`).Results
		if len(made) != 1 || made[0].KV.Key != "a" {
			t.Errorf("%+v", made)
		}
	})
}

// Ensure that a check that becomes critical in a transaction ends its sessions there, so that later
// operations find their locks free, except for the delay.
func TestTxnCatalog_T13X9S31_CriticalCheck(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.register()
		holder := h.create(`{"Node":"ext","NodeChecks":["alive"],"LockDelay":0}`).ID
		delayed := h.create(`{"Node":"ext","NodeChecks":["alive"]}`).ID
		next := h.create("").ID
		h.want("PUT /v1/kv/free?acquire="+holder, "", 200, "true")
		h.want("PUT /v1/kv/late?acquire="+delayed, "", 200, "true")
		critical := `{"Check":{"Verb":"set","Check":{"Node":"ext","CheckID":"alive",` +
			`"Status":"critical"}}}`
		lock := func(key string) string { return op("lock", key, `,"Session":"`+next+`"`) }
		h.refuses([]string{critical, lock("late")},
			`1: failed to lock key "late" due to lock delay`)
		h.info(holder) // nothing was done
		made := h.txn(critical, op("check-session", "late", ""), lock("free")).Results
		if len(made) != 3 || made[2].KV.Session != next || made[2].KV.LockIndex != 2 {
			t.Errorf("%+v", made)
		}
		h.want("GET /v1/session/info/"+holder, "", 200, "[]")
	})
}

// Ensure that a check keeps its TTL when a transaction sets it, and loses a definition that is not
// sent again.
func TestTxnCatalog_T13_CheckKeepsItsTTL(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.must(h.db.Update(func(tx *lockd.Txn) error {
			return tx.Catalog().PutCheck(catalog.Check{
				Node: "local", ID: "c", Status: catalog.Passing, TTL: time.Minute,
				Meta: map[string]string{"mine": "x"},
			})
		}))
		before := h.db.Snapshot().Catalog()
		for _, definition := range []string{`{"HTTP":"x"}`, `{}`} {
			h.txn(`{"Check":{"Verb":"set","Check":{"Node":"local","CheckID":"c",` +
				`"Status":"warning","Definition":` + definition + `}}}`)
			c, _ := h.db.Snapshot().Catalog().Check("local", "c")
			if c.TTL != time.Minute || c.Meta["mine"] != "x" || c.Status != catalog.Warning ||
				(len(c.Meta) == 2) != (definition != "{}") {
				t.Errorf("%s: %+v", definition, c)
			}
		}
		if c, _ := before.Check("local", "c"); len(c.Meta) != 1 {
			t.Errorf("an old snapshot has %+v", c)
		}
	})
}
