package lockd

import "github.com/lockd/lockd/catalog"

// Catalog returns the catalog, for reading and writing within the transaction.
func (tx *Txn) Catalog() *catalog.Txn {
	tx.check()
	return catalog.NewTxn(tx.rules, (*catalogTxn)(tx))
}

// Catalog returns the catalog.
func (s *Snapshot) Catalog() *catalog.Snapshot { return catalog.NewSnapshot(s.rows) }

// catalogTxn is a Txn with the methods that package catalog needs.
type catalogTxn Txn

// Check panics after the end of the transaction.
func (tx *catalogTxn) Check() { (*Txn)(tx).check() }

// Write panics as Check does, and calls write, which may change locks or sessions.
func (tx *catalogTxn) Write(op, name string, write func() error) error {
	(*Txn)(tx).enter()
	defer (*Txn)(tx).leave()
	return wrap(op, name, write())
}
