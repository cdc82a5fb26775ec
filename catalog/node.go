package catalog

import (
	"iter"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Node is a machine, or anything else that has services, checks and sessions. Names are compared
// without case; the spelling given last is kept. The zero value is no node.
type Node struct {
	Name    string
	ID      string // optional; the same ID under another name is a renaming (N5)
	Address string
	Meta    map[string]string // shared: do not change it

	CreateIndex, ModifyIndex uint64 // set by the database
}

// Node returns a node by its name, and whether there is one.
func (tx *Txn) Node(name string) (Node, bool) {
	tx.of.Check()
	return value(tx.rules.Node(name), nodeOf)
}

// PutNode registers a node, or changes it. A node with the same ID under another name is removed
// first, with all that belongs to it (N5). It returns lockd.ErrInvalid for a name that is empty or
// too long, has a zero byte, or is not UTF-8.
func (tx *Txn) PutNode(node Node) error {
	return tx.of.Write("put node", node.Name, func() error {
		return tx.rules.PutNode(schema.Node(node))
	})
}

// DeleteNode removes a node with its services and checks, and ends its sessions with ErrNodeGone
// (N4). It reports whether there was one.
func (tx *Txn) DeleteNode(name string) (deleted bool, err error) {
	return tx.remove("delete node", name, func() bool { return tx.rules.DeleteNode(name) })
}

// Node returns a node by its name, in any case, and whether there is one.
func (s *Snapshot) Node(name string) (Node, bool) {
	return value(s.rows.Nodes.Get(engine.Folded(name)), nodeOf)
}

// Nodes yields all nodes, in the order of their names.
func (s *Snapshot) Nodes() iter.Seq[Node] { return values(s.rows.Nodes.Prefix(""), nodeOf) }

func nodeOf(row *schema.Node) Node { return Node(*row) }
