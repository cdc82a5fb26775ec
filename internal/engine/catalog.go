package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockd/lockd/internal/schema"
)

// Node returns the node with the name, or nil.
func (tx *Txn) Node(name string) *schema.Node {
	return tx.engine.rows.Nodes.Newest(Folded(name))
}

// Service returns the service of a node with the ID, or nil.
func (tx *Txn) Service(node, id string) *schema.Service {
	return tx.engine.rows.Services.Newest(CatalogKey(node, id))
}

// Check returns the check of a node with the ID, or nil.
func (tx *Txn) Check(node, id string) *schema.Check {
	return tx.engine.rows.Checks.Newest(CatalogKey(node, id))
}

// PutNode registers a node, or changes it. A node with the same ID under another name is removed
// first, with all that belongs to it (N5). It returns ErrInvalid.
func (tx *Txn) PutNode(node schema.Node) error {
	if err := CheckNodeName("Node.Name", node.Name); err != nil {
		return err
	}
	tx.putNode(node)
	return nil
}

// putNode is PutNode for a name that is known to be valid.
func (tx *Txn) putNode(node schema.Node) {
	old := tx.Node(node.Name)
	if node.ID != "" && (old == nil || old.ID != node.ID) {
		if other := tx.engine.nodeWithID(node.ID); other != nil {
			tx.removeNode(other)
		}
	}
	node.Meta = maps.Clone(node.Meta)
	node.CreateIndex, node.ModifyIndex = tx.Index(), tx.Index()
	if old != nil {
		node.CreateIndex = old.CreateIndex
		if old.Name == node.Name && old.ID == node.ID && old.Address == node.Address &&
			maps.Equal(old.Meta, node.Meta) {
			return
		}
	}
	tx.engine.rows.Nodes.Put(Folded(node.Name), node)
}

// nodeWithID returns the node that has the ID, or nil. The first call takes note of the IDs of all
// nodes: few databases have any.
func (e *Engine) nodeWithID(id string) *schema.Node {
	if e.nodeIDs == nil {
		e.nodeIDs = make(map[string]string)
		for _, row := range e.rows.Nodes.Ascend("") {
			e.nodeMoved(nil, row)
		}
		e.rows.Nodes.OnMove(e.nodeMoved)
	}
	return e.rows.Nodes.Newest(e.nodeIDs[id])
}

// nodeMoved updates e.nodeIDs. When a transaction is taken back, a node may regain its ID before
// another node has lost it.
func (e *Engine) nodeMoved(old, new *schema.Node) {
	if old != nil && e.nodeIDs[old.ID] == Folded(old.Name) {
		delete(e.nodeIDs, old.ID)
	}
	if new != nil && new.ID != "" {
		e.nodeIDs[new.ID] = Folded(new.Name)
	}
}

// checkNodeIDs compares e.nodeIDs with the rows.
func (e *Engine) checkNodeIDs() error {
	if e.nodeIDs == nil {
		return nil
	}
	with := 0
	for key, row := range e.rows.Nodes.Ascend("") {
		if row.ID == "" {
			continue
		}
		with++
		if e.nodeIDs[row.ID] != key {
			return fmt.Errorf("bug: node %q has the ID of %q", row.Name, e.nodeIDs[row.ID])
		}
	}
	if n := len(e.nodeIDs); n != with {
		return fmt.Errorf("bug: %d IDs of nodes are known, but %d nodes have one", n, with)
	}
	return nil
}

// DeleteNode removes a node with its services and checks, and ends its sessions with ErrNodeGone
// (N4). It reports whether the node existed.
func (tx *Txn) DeleteNode(name string) bool {
	row := tx.Node(name)
	if row == nil {
		return false
	}
	tx.removeNode(row)
	return true
}

func (tx *Txn) removeNode(row *schema.Node) {
	e := tx.engine
	tx.endBound(Folded(row.Name), missing(ErrNodeGone, row.Name))
	of := Folded(row.Name) + "\x00"
	for key := range e.rows.Services.Prefix(of) {
		e.rows.Services.Delete(key)
	}
	for key := range e.rows.Checks.Prefix(of) {
		tx.removeCheck(key)
	}
	e.rows.Nodes.Delete(Folded(row.Name))
}

// PutService registers a service on a node, or changes it. It returns ErrInvalid or ErrNoNode (N1).
func (tx *Txn) PutService(next schema.Service) error {
	if next.Name == "" {
		return invalid("Service.Name is empty")
	}
	if err := checkCatalogID("Service.ID", next.Node, next.ID); err != nil {
		return err
	}
	if tx.Node(next.Node) == nil {
		return missing(ErrNoNode, next.Node)
	}
	next.Tags, next.Meta = slices.Clone(next.Tags), maps.Clone(next.Meta)
	next.CreateIndex, next.ModifyIndex = tx.Index(), tx.Index()
	key := CatalogKey(next.Node, next.ID)
	if old := tx.engine.rows.Services.Newest(key); old != nil {
		next.CreateIndex = old.CreateIndex
		if old.Node == next.Node && old.ID == next.ID &&
			old.Name == next.Name && old.Address == next.Address && old.Port == next.Port &&
			slices.Equal(old.Tags, next.Tags) && maps.Equal(old.Meta, next.Meta) {
			return nil
		}
	}
	tx.engine.rows.Services.Put(key, next)
	return nil
}

// DeleteService removes a service with its checks, and ends the sessions that are bound to any of
// these checks with ErrCheckGone (N4). It reports whether the service existed.
func (tx *Txn) DeleteService(node, id string) bool {
	key := CatalogKey(node, id)
	if tx.engine.rows.Services.Newest(key) == nil {
		return false
	}
	of := Folded(node) + "\x00"
	for key, check := range tx.engine.rows.Checks.Prefix(of) {
		if Folded(check.ServiceID) == Folded(id) {
			tx.removeCheck(key)
		}
	}
	tx.engine.rows.Services.Delete(key)
	return true
}

// PutCheck registers a check, or changes it, and begins its TTL. If its status is Critical, every
// session that is bound to it ends with ErrCheckCritical, even if the check was critical before
// (N3). It returns ErrInvalid, ErrNoNode or ErrNoService.
func (tx *Txn) PutCheck(next schema.Check) error {
	if next.Status > Passing {
		return invalid("Check.Status is %d, not a Status", next.Status)
	}
	if err := CheckTTL("Check.TTL", next.TTL); err != nil {
		return err
	}
	if err := checkCatalogID("Check.ID", next.Node, next.ID); err != nil {
		return err
	}
	if tx.Node(next.Node) == nil {
		return missing(ErrNoNode, next.Node)
	}
	if next.ServiceID != "" && tx.Service(next.Node, next.ServiceID) == nil {
		return missing(ErrNoService, next.ServiceID)
	}
	next.Meta = maps.Clone(next.Meta)
	next.CreateIndex, next.ModifyIndex = tx.Index(), tx.Index()
	tx.writeCheck(CatalogKey(next.Node, next.ID), next)
	return nil
}

// writeCheck puts the row of a check, unless nothing changes, and does what follows from its status
// and TTL.
func (tx *Txn) writeCheck(key string, next schema.Check) {
	if next.Status == Critical {
		tx.endBound(key, missing(ErrCheckCritical, next.ID))
	}
	var deadline time.Time
	if lapses(&next) {
		deadline = tx.now.Add(next.TTL)
	}
	tx.lease(key, deadline)
	if old := tx.engine.rows.Checks.Newest(key); old != nil {
		if old.Node == next.Node && old.ID == next.ID && old.Name == next.Name &&
			old.Status == next.Status && old.Notes == next.Notes && old.Output == next.Output &&
			old.ServiceID == next.ServiceID && old.TTL == next.TTL &&
			maps.Equal(old.Meta, next.Meta) {
			return
		}
		next.CreateIndex = old.CreateIndex
	}
	tx.engine.rows.Checks.Put(key, next)
}

// DeleteCheck removes a check, and ends the sessions that are bound to it with ErrCheckGone (S30).
// It reports whether the check existed.
func (tx *Txn) DeleteCheck(node, id string) bool {
	return tx.removeCheck(CatalogKey(node, id))
}

func (tx *Txn) removeCheck(key string) bool {
	row := tx.engine.rows.Checks.Newest(key)
	if row == nil {
		return false
	}
	tx.endBound(key, missing(ErrCheckGone, row.ID))
	tx.engine.rows.Checks.Delete(key)
	tx.lease(key, time.Time{})
	return true
}

// endBound ends the sessions that are bound to a node or a check, the oldest first.
func (tx *Txn) endBound(key string, cause error) {
	bound := slices.Collect(maps.Keys(tx.engine.bound[key]))
	SortByAge(bound)
	for _, s := range bound {
		if s.live {
			tx.EndSession(s, cause)
		}
	}
}

// lapse makes a check critical, because its TTL is over.
func (tx *Txn) lapse(l *checkLease) {
	next := *tx.engine.rows.Checks.Newest(l.check)
	next.Status, next.Output = Critical, lapsed
	next.ModifyIndex = tx.Index()
	tx.writeCheck(l.check, next)
}
