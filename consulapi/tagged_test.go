package consulapi_test

import (
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// Ensure that a transaction shows missing tags as null, as Consul does there and nowhere else.
func TestTxnCatalog_T15_NoTags(t *testing.T) {
	run(t, nil, func(h *harness) {
		r := h.send("PUT /v1/txn", `[
			{"Node":{"Verb":"set","Node":{"Node":"n"}}},
			{"Service":{"Verb":"set","Node":"n","Service":{"Service":"s"}}},
			{"Service":{"Verb":"set","Node":"n","Service":{"Service":"t","Tags":[]}}},
			{"Check":{"Verb":"set","Check":{"Node":"n","CheckID":"a","ServiceID":"s"}}},
			{"Check":{"Verb":"set","Check":{"Node":"n","CheckID":"b"}}},
			{"Check":{"Verb":"set","Check":{"Node":"n","CheckID":"c","ServiceID":"t"}}}]`)
		if r.code != 200 || strings.Count(r.body, `"Tags":null`) != 2 ||
			strings.Count(r.body, `"ServiceTags":null`) != 3 {
			t.Errorf("%d %s", r.code, r.body)
		}
		for _, read := range []string{"health/node/n", "catalog/service/s", "catalog/node/n"} {
			if r := h.send("GET /v1/"+read, ""); strings.Contains(r.body, `Tags":null`) {
				t.Errorf("%s: %s", read, r.body)
			}
		}
	})
}

// Ensure that a check whose Meta has something else under the key of its Definition is shown
// without one, and keeps no list from being read.
func TestCatalog_T15_ForeignDefinition(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.must(h.db.Update(func(tx *lockd.Txn) error {
			return tx.Catalog().PutCheck(catalog.Check{
				Node: h.db.Node(), ID: "c", Name: "c",
				Meta: map[string]string{"consul.definition": "see the wiki"},
			})
		}))
		for _, path := range []string{"health/state/any", "agent/checks", "health/node/local"} {
			r := h.send("GET /v1/"+path, "")
			if r.code != 200 || !strings.Contains(r.body, `"CheckID":"c"`) {
				t.Errorf("%s: %d %s", path, r.code, r.body)
			}
		}
	})
}

// Ensure that the tagged addresses of nodes and services are kept, however they come, and that
// clients do not see where.
func TestCatalog_T15_TaggedAddresses(t *testing.T) {
	const (
		ofNode    = `"TaggedAddresses":{"lan":"10.0.0.1","wan":"1.2.3.4"}`
		ofService = `"TaggedAddresses":{"wan":{"Address":"1.2.3.4","Port":81}}`
	)
	run(t, nil, func(h *harness) {
		h.want("PUT /v1/catalog/register", `{"Node":"n","Address":"a","NodeMeta":{"k":"v"},`+ofNode+
			`,"Service":{"Service":"s",`+ofService+`}}`, 200, "true")
		h.want("PUT /v1/agent/service/register", `{"Name":"t",`+ofService+`}`, 200, "")
		r := h.send("PUT /v1/txn", `[{"Node":{"Verb":"set","Node":{"Node":"m",`+ofNode+`}}},
			{"Service":{"Verb":"set","Node":"m","Service":{"Service":"u",`+ofService+`}}},
			{"Node":{"Verb":"get","Node":{"Node":"n"}}}]`)
		if r.code != 200 || strings.Count(r.body, ofNode) != 2 ||
			strings.Count(r.body, ofService) != 1 || strings.Contains(r.body, "tagged_addresses") {
			t.Errorf("%d %s", r.code, r.body)
		}
		for read, want := range map[string][]string{
			"catalog/nodes":       {ofNode, `"Meta":{"k":"v"}`, `"Meta":null`},
			"catalog/node/n":      {ofNode, ofService},
			"catalog/service/s":   {ofNode, `"Service` + ofService[1:], `"NodeMeta":{"k":"v"}`},
			"health/service/u":    {ofNode, ofService},
			"agent/service/t":     {ofService, `"Meta":{}`},
			"agent/services":      {ofService},
			"catalog/node/local":  {`"TaggedAddresses":{"lan":"127.0.0.1"`},
			"health/service/t":    {ofService},
			"catalog/service/u":   {`"NodeMeta":null`, `"ServiceMeta":{}`},
			"agent/self":          {`"consul-network-segment"`},
			"health/node/n":       {},
			"catalog/services":    {`"u":[]`},
			"catalog/datacenters": {},
		} {
			r := h.send("GET /v1/"+read, "")
			for _, part := range want {
				if !strings.Contains(r.body, part) {
					t.Errorf("%s: %s lacks %s", read, r.body, part)
				}
			}
			if strings.Contains(r.body, "tagged_addresses") {
				t.Errorf("%s: %s", read, r.body)
			}
		}
		h.want("PUT /v1/catalog/register", `{"Node":"n","Address":"a","NodeMeta":{"k":"v",`+
			`"consul.tagged_addresses":"x"}}`, 200, "true")
		r = h.send("GET /v1/catalog/node/n", "")
		if !strings.Contains(r.body, `"TaggedAddresses":null,"Meta":{"k":"v"}`) {
			t.Errorf("registered anew: %s", r.body)
		}
	})
}

// Ensure that a service of the agent whose address is an IP address has it as its tagged addresses
// too, where it was registered without.
func TestAgent_N12_TaggedAddresses(t *testing.T) {
	run(t, nil, func(h *harness) {
		const v4 = `"wan_ipv4":{"Address":"10.0.0.1","Port":80}`
		for sent, want := range map[string]string{
			`"Address":"10.0.0.1"`: `"lan_ipv4":{"Address":"10.0.0.1","Port":80},` + v4,
			`"Address":"fd00::1"`: `"lan_ipv6":{"Address":"fd00::1","Port":80},` +
				`"wan_ipv6":{"Address":"fd00::1","Port":80}`,
			`"TaggedAddresses":{"lan_ipv4":{"Address":"a"}},` +
				`"Address":"10.0.0.1"`: `"lan_ipv4":{"Address":"a","Port":0},` + v4,
			`"Address":"name"`: ``,
			`"Tags":[]`:        ``,
		} {
			h.want("PUT /v1/agent/service/register", `{"Name":"s","Port":80,`+sent+`}`, 200, "")
			if want != "" {
				want = `"TaggedAddresses":{` + want + `}`
			}
			for _, path := range []string{"agent/service/s", "health/service/s"} {
				_, shown, _ := strings.Cut(h.send("GET /v1/"+path, "").body, `"Service":"s"`)
				if !strings.Contains(shown, want) ||
					strings.Contains(shown, "Tagged") != (want != "") {
					t.Errorf("%s: %s: %s", sent, path, shown)
				}
			}
		}
	})
}

// A definition in a file of the agent, sent as it is, spells the member so.
func TestAgent_T15_TaggedAddressesAsFilesSpellThem(t *testing.T) {
	run(t, nil, func(h *harness) {
		const addresses = `{"wan":{"address":"1.2.3.4","port":81}}`
		h.want("PUT /v1/agent/service/register", `{"name":"s","tagged_addresses":`+addresses+`}`,
			200, "")
		r := h.send("GET /v1/agent/service/s", "")
		if !strings.Contains(r.body, `"TaggedAddresses":{"wan":{"Address":"1.2.3.4","Port":81}}`) {
			t.Error(r.body)
		}
		h.want("PUT /v1/agent/service/register", `{"name":"s","TaggedAddresses":{"lan":
			{"Address":"5.6.7.8","Port":1}},"tagged_addresses":`+addresses+`}`, 200, "")
		if r := h.send("GET /v1/agent/service/s", ""); strings.Contains(r.body, "1.2.3.4") {
			t.Error(r.body)
		}
	})
}
