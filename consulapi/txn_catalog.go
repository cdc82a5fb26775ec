package consulapi

import (
	"cmp"
	"errors"
	"strconv"

	"github.com/google/uuid"

	"github.com/lockd/lockd/catalog"
)

// verb is what an operation on the catalog does.
type verb struct{ Verb string }

// writes reports whether the verb may write. In Consul an unknown verb may (T11).
func (v verb) writes() bool { return v.Verb != "get" }

// puts reports whether the verb puts a thing into the catalog.
func (v verb) puts() bool { return v.Verb == "set" || v.Verb == "cas" }

// txnNode is an operation on a node (T13).
type txnNode struct {
	verb
	Node struct {
		ID, Node, Address string
		Meta              map[string]string
		TaggedAddresses   map[string]string
		ModifyIndex       uint64

		unkept
	}
	h     *handler
	named []string // the names of the nodes that may have the ID
}

// txnService is an operation on a service of a node.
type txnService struct {
	verb
	Node    string
	Service sentService
}

// txnCheck is an operation on a check.
type txnCheck struct {
	verb
	Check sentCheck
}

// catalogVerb is what a verb of the catalog does with a node, a service or a check.
type catalogVerb struct {
	kind  string // Node, Service or Check
	name  string // of the thing, for the texts
	index uint64 // that the thing has to have for cas and delete-cas; 0: must not exist

	// look returns the thing's index, 0 if it does not exist, and how it is shown.
	look   func() (uint64, txnResult)
	put    func() error
	remove func() error
}

// quoted names a thing as Consul does.
func quoted(kind, name string) string { return kind + " " + strconv.Quote(name) }

// do does the verb.
func (v catalogVerb) do(verb string) ([]txnResult, error) {
	found, result := v.look()
	switch verb {
	case "get":
		if found == 0 {
			return nil, refused("%s doesn't exist", v.name)
		}
		return []txnResult{result}, nil
	case "set", "cas":
		if verb == "cas" && found != v.index {
			return nil, refused("failed to set %s, index is stale", v.name)
		}
		err := v.put()
		switch {
		case errors.Is(err, catalog.ErrNoNode):
			return nil, reword(err, "Missing node registration")
		case errors.Is(err, catalog.ErrNoService):
			return nil, reword(err, "Missing service registration")
		case err != nil:
			return nil, err
		}
		_, result = v.look()
		return []txnResult{result}, nil
	case "delete", "delete-cas":
		if verb == "delete-cas" && (found == 0 || found != v.index) {
			return nil, refused("failed to delete %s, index is stale", v.name)
		}
		return nil, v.remove()
	}
	return nil, refused("unknown %s verb %q", v.kind, verb)
}

func (op *txnNode) check() error {
	switch {
	case op.Verb == "get":
	case op.Node.Node == "":
		return refused("Must provide node")
	case op.Node.ID != "" && uuid.Validate(op.Node.ID) != nil:
		return refused("Bad node ID: %v", uuid.Validate(op.Node.ID))
	}
	return nil
}

func (op *txnNode) apply(on state) ([]txnResult, error) {
	sent := &op.Node
	return catalogVerb{
		kind: "Node", name: quoted("node", sent.Node), index: sent.ModifyIndex,
		look: func() (uint64, txnResult) {
			n, _ := on.catalog.Node(sent.Node)
			if op.Verb == "get" {
				n = op.get(on)
			}
			shown := op.h.newNode(n)
			return n.ModifyIndex, txnResult{Node: &shown}
		},
		put: func() error {
			if err := reserved(on.tx.Catalog(), sent.Node, sent.ID); err != nil {
				return err
			}
			n, _ := on.catalog.Node(sent.Node)
			return op.h.putNode(on.tx.Catalog(), catalog.Node{
				Name: sent.Node, ID: cmp.Or(canonicalID(sent.ID), n.ID), Address: sent.Address,
				Meta: hide(sent.Meta, taggedKey, sent.TaggedAddresses),
			})
		},
		remove: func() error {
			_, err := on.tx.Catalog().DeleteNode(sent.Node)
			return err
		},
	}.do(op.Verb)
}

// find notes which nodes may have the ID that a get names: the node that has it now, and those that
// the operations before this one give it to. It is called before the transaction, which cannot
// search for an ID.
func (op *txnNode) find(before []*txnOp) {
	if op.Verb != "get" || op.Node.ID == "" {
		return
	}
	for n := range op.h.db.Snapshot().Catalog().Nodes() {
		if sameID(n.ID, op.Node.ID) {
			op.named = append(op.named, n.Name)
		}
	}
	for _, other := range before {
		if other.Node != nil && sameID(other.Node.Node.ID, op.Node.ID) {
			op.named = append(op.named, other.Node.Node.Node)
		}
	}
}

// get returns the node with the ID that was sent, or with the name if no ID was sent. It returns
// the zero Node if there is none.
func (op *txnNode) get(on state) catalog.Node {
	for _, name := range append([]string{op.Node.Node}, op.named...) {
		if n, _ := on.catalog.Node(name); op.Node.ID == "" || sameID(n.ID, op.Node.ID) {
			return n
		}
	}
	return catalog.Node{}
}

func (op *txnService) check() error {
	if op.Verb == "get" || !op.puts() && op.Service.id() == "" {
		return nil
	}
	return op.Service.valid()
}

func (op *txnService) apply(on state) ([]txnResult, error) {
	sent := &op.Service
	id := sent.id()
	return catalogVerb{
		kind: "Service", name: quoted("service", id) + " on " + quoted("node", op.Node),
		index: sent.ModifyIndex,
		look: func() (uint64, txnResult) {
			s, _ := on.catalog.Service(op.Node, id)
			shown := newService(s)
			shown.Tags = orNull(s.Tags)
			return s.ModifyIndex, txnResult{Service: &shown}
		},
		put: func() error { return sent.put(on.tx.Catalog(), op.Node) },
		remove: func() error {
			_, err := on.tx.Catalog().DeleteService(op.Node, id)
			return err
		},
	}.do(op.Verb)
}

// orNull returns the tags as a transaction shows them: an empty list is null there.
func orNull(tags []string) []string {
	if len(tags) == 0 {
		return nil
	}
	return tags
}

func (op *txnCheck) check() error {
	switch {
	case !op.puts():
		return nil
	case op.Check.id() == "":
		return refused("Must provide check ID or name")
	}
	_, err := parseStatus(op.Check.Status)
	return err
}

func (op *txnCheck) apply(on state) ([]txnResult, error) {
	sent := &op.Check
	id := sent.id()
	return catalogVerb{
		kind: "Check", name: quoted("check", id) + " on " + quoted("node", sent.Node),
		index: sent.ModifyIndex,
		look: func() (uint64, txnResult) {
			c, _ := on.catalog.Check(sent.Node, id)
			of, _ := on.catalog.Service(c.Node, c.ServiceID)
			shown := newCheck(c, of)
			shown.ServiceTags = orNull(of.Tags)
			return c.ModifyIndex, txnResult{Check: &shown}
		},
		put: func() error { return sent.put(on.tx.Catalog(), sent.Node) },
		remove: func() error {
			_, err := on.tx.Catalog().DeleteCheck(sent.Node, id)
			return err
		},
	}.do(op.Verb)
}
