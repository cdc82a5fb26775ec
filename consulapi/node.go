package consulapi

import (
	"cmp"

	"github.com/google/uuid"

	"github.com/lockd/lockd"
)

const (
	serfHealth = "serfHealth"
	address    = "127.0.0.1"
)

// register puts the node of this process into the catalog, with a check that passes for as long
// as the process lives (N14, X21): the default sessions are bound to it. What the node has stays.
func (h *handler) register() error {
	return h.db.Update(func(tx *lockd.Txn) error {
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
		return tx.PutCheck(lockd.Check{
			Node: node.Name, ID: serfHealth, Name: "Serf Health Status", Status: lockd.Passing,
			Output: "Agent alive and reachable",
		})
	})
}
