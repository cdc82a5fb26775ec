package catalog

import "github.com/lockd/lockd/internal/engine"

// Txn reads and writes the catalog in a transaction. Its methods apply the rules to the newest
// state, the transaction's own writes included; none of them blocks. Like the methods of the
// lockd.Txn, they panic after the end of the transaction. The zero value is not usable.
type Txn struct {
	rules *engine.Txn
	of    transaction
}

// transaction is what a Txn needs of the lockd.Txn that it is of.
type transaction interface {
	// Check panics after the end of the transaction.
	Check()

	// Write is Check, and then calls write, which may change locks or sessions. It returns the
	// error of write as a *lockd.Error.
	Write(op, name string, write func() error) error
}

// NewTxn is for lockd.Txn.Catalog. Programs call that.
func NewTxn(rules *engine.Txn, of transaction) *Txn { return &Txn{rules, of} }

// remove calls Write with remove, and returns what that reports: whether there was a row to remove.
func (tx *Txn) remove(op, name string, remove func() bool) (removed bool, err error) {
	err = tx.of.Write(op, name, func() error {
		removed = remove()
		return nil
	})
	return removed, err
}
