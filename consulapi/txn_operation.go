package consulapi

import (
	"iter"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// operation is what a transaction is made of.
type operation interface {
	// check refuses a mistake that does not depend on the state.
	check() error
	// writes reports whether the verb is one that may write (T11).
	writes() bool
	// apply does the operation on the state, and returns its results, often none.
	apply(on state) ([]txnResult, error)
}

// state is what the operations of a transaction read, and what those that may write change.
type state struct {
	keys    keyReader
	catalog interface {
		Node(name string) (catalog.Node, bool)
		Service(node, id string) (catalog.Service, bool)
		Check(node, id string) (catalog.Check, bool)
	}
	tx   *lockd.Txn // nil if no operation may write
	room *int       // how many more entries its get-trees may have; nil: any number
}

// keyReader reads keys, from a snapshot or in a transaction.
type keyReader interface {
	Get(key string) (lockd.Entry, bool)
	Prefix(prefix string) iter.Seq2[string, lockd.Entry]
}

// txnResult is what an operation found or left. One of its members is set.
type txnResult struct {
	tree    list[*entry] // of get-tree: a result for each entry (T6)
	KV      *entry       `json:",omitempty"`
	Node    *node        `json:",omitempty"`
	Service *service     `json:",omitempty"`
	Check   *check       `json:",omitempty"`
}

func (v txnResult) encode(e *encoder) {
	if v.KV == nil {
		add(e, marshal(v))
		return
	}
	e.raw(`{"KV":`)
	e.value(v.KV)
	e.raw("}")
}

// refused returns the error for an operation that cannot be done, with that text. The error has no
// status of its own: the answer to the transaction has one.
func refused(format string, args ...any) error { return reword(nil, format, args...) }
