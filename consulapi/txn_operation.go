package consulapi

import "github.com/lockd/lockd"

// operation is what a transaction is made of.
type operation interface {
	// check refuses a mistake that does not depend on the state.
	check() error
	// writes reports whether the verb is one that may write (T11).
	writes() bool
	// apply does the operation, and returns its results, often none.
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

// refused returns why an operation cannot be done, in Consul's words. The error has no status of
// its own: the transaction has.
func refused(format string, args ...any) error { return reword(nil, format, args...) }
