// Package catalog has the nodes of a database, with their services and checks, as in Consul, and
// attachments. A program that only locks keys does not need it.
//
// lockd.Txn.Catalog returns a [Txn], which reads and writes the newest state, and
// lockd.Snapshot.Catalog a [Snapshot], which reads the published one:
//
//	err := db.Update(func(tx *lockd.Txn) error {
//		return tx.Catalog().PutNode(catalog.Node{Name: "web-1", Address: "10.0.0.1"})
//	})
//	node, exists := db.Snapshot().Catalog().Node("web-1")
//
// A session is bound to a node and to checks of that node (lockd.SessionOptions.Node and Checks).
// It ends when the node or one of the checks is removed, and when one of the checks becomes
// [Critical]. A change of the catalog is an event of lockd.CatalogScope.
//
// The errors of a Txn are *lockd.Error. Besides those of this package, errors.Is finds
// lockd.ErrInvalid, ErrNoSession and ErrConflict in them.
package catalog
