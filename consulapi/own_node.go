package consulapi

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// register puts the node of this process into the catalog, with a check that passes for as long as
// the process lives (N14, X21): default sessions are bound to that check. What the node has stays.
func (h *handler) register() error {
	return h.db.Update(func(txn *lockd.Txn) error {
		tx := txn.Catalog()
		node := h.ownNode(tx)
		if err := tx.PutNode(node); err != nil {
			return err
		}
		return tx.PutCheck(catalog.Check{
			Node: node.Name, ID: serfHealth, Name: "Serf Health Status", Status: catalog.Passing,
			Output: "Agent alive and reachable",
		})
	})
}

// ownNode returns the node of this process as it is to be in the catalog.
func (h *handler) ownNode(tx *catalog.Txn) catalog.Node {
	node, _ := tx.Node(h.opts.Node)
	node.Name = cmp.Or(node.Name, h.opts.Node)
	node.Address = cmp.Or(node.Address, address)
	node.ID = cmp.Or(h.opts.NodeID, node.ID)
	if node.ID == "" {
		node.ID = uuid.NewString()
	}
	if node.Meta == nil {
		node.Meta = map[string]string{"consul-network-segment": ""}
	}
	return node
}

// putNode puts a node that a client has sent. The node of this process stays as it is (N16).
func (h *handler) putNode(tx *catalog.Txn, n catalog.Node) error {
	if sameName(n.Name, h.opts.Node) {
		n = h.ownNode(tx)
	}
	return tx.PutNode(n)
}

// registered reports whether the catalog has the node of this process and its check, whatever the
// status.
func (h *handler) registered() bool {
	_, exists := h.db.Snapshot().Catalog().Check(h.opts.Node, serfHealth)
	return exists
}

// update changes what the agent has. If its node was removed from the catalog, update puts that
// back first: the process still runs (N16).
func (h *handler) update(fn func(tx *catalog.Txn) error) error {
	update := func(tx *lockd.Txn) error { return fn(tx.Catalog()) }
	err := h.db.Update(update)
	if errors.Is(err, catalog.ErrNoNode) {
		if err := h.register(); err != nil {
			return err
		}
		err = h.db.Update(update)
	}
	return err
}

// reserved returns an error if a node with another ID has the name, and is alive: its serfHealth is
// not critical (N5).
func reserved(tx *catalog.Txn, name, id string) error {
	old, _ := tx.Node(name)
	check, exists := tx.Check(name, serfHealth)
	if id == "" || old.ID == "" || sameID(id, old.ID) || !exists ||
		check.Status == catalog.Critical {
		return nil
	}
	return mistake("Error while renaming Node ID: %q: Node name %s is reserved by node %s "+
		"with name %s (%s)", id, name, old.ID, old.Name, old.Address)
}

// repairDelay is how long the node of this process stays without a passing check, or out of the
// catalog, after a client has made it so (N16).
const repairDelay = time.Minute

// repair registers the node of this process again after repairDelay, if its check is missing or
// does not pass.
func (h *handler) repair() {
	check, _ := h.db.Snapshot().Catalog().Check(h.opts.Node, serfHealth)
	if check.Status == catalog.Passing || !h.repairing.CompareAndSwap(false, true) {
		return
	}
	go func() {
		// An empty scope never changes: this waits for the delay, or until the database is closed.
		_, _, _ = h.db.Wait(context.Background(), lockd.Scope{}, 1, repairDelay)
		h.repairing.Store(false)
		if err := h.register(); errors.Is(err, lockd.ErrCommit) {
			h.repair()
		}
	}()
}
