package consulapi

import "github.com/lockd/lockd"

// operation is what a transaction is made of.
type operation interface {
	// check refuses what is wrong whatever the state is.
	check() error
	// writes reports whether the verb is one that may write (T11).
	writes() bool
	// apply does it, and returns what is to be told of it, often nothing.
	apply(tx *lockd.Txn) ([]txnResult, error)
}

// txnResult is what an operation found or left. One of its members is set.
type txnResult struct {
	KV      *entry   `json:",omitempty"`
	Node    *node    `json:",omitempty"`
	Service *service `json:",omitempty"`
	Check   *check   `json:",omitempty"`
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

// refused is why an operation cannot be done, as Consul says it. It has no status of its own: the
// transaction has.
func refused(format string, args ...any) error { return reword(nil, format, args...) }
