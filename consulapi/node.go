package consulapi

import (
	"cmp"

	"github.com/google/uuid"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

const (
	serfHealth = "serfHealth"
	address    = "127.0.0.1"
)

// node is a node as it is in JSON (T15).
type node struct {
	ID              string
	Node            string
	Address         string
	Datacenter      string
	TaggedAddresses map[string]string
	Meta            map[string]string
	CreateIndex     uint64
	ModifyIndex     uint64
}

// newNode shows a node. That of this process has one address for all purposes, unless it was
// registered with others.
func (h *handler) newNode(n catalog.Node) node {
	shown := node{
		ID: n.ID, Node: n.Name, Address: n.Address, Datacenter: h.opts.Datacenter,
		TaggedAddresses: hidden[string](n.Meta, taggedKey), Meta: visible(n.Meta),
		CreateIndex: n.CreateIndex, ModifyIndex: n.ModifyIndex,
	}
	if sameName(n.Name, h.opts.Node) && shown.TaggedAddresses == nil {
		shown.TaggedAddresses = map[string]string{
			"lan": n.Address, "lan_ipv4": n.Address, "wan": n.Address, "wan_ipv4": n.Address,
		}
	}
	return shown
}

// register puts the node of this process into the catalog, with a check that passes for as long
// as the process lives (N14, X21): the default sessions are bound to it. What the node has stays.
func (h *handler) register() error {
	return h.db.Update(func(txn *lockd.Txn) error {
		tx := txn.Catalog()
		node, _ := tx.Node(h.opts.Node)
		node.Name = cmp.Or(node.Name, h.opts.Node)
		node.Address = cmp.Or(node.Address, address)
		if h.opts.NodeID != "" {
			node.ID = h.opts.NodeID
		} else if node.ID == "" {
			node.ID = uuid.NewString()
		}
		if node.Meta == nil {
			node.Meta = map[string]string{"consul-network-segment": ""}
		}
		if err := tx.PutNode(node); err != nil {
			return err
		}
		return tx.PutCheck(catalog.Check{
			Node: node.Name, ID: serfHealth, Name: "Serf Health Status", Status: catalog.Passing,
			Output: "Agent alive and reachable",
		})
	})
}
