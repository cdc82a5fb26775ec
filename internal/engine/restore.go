package engine

import (
	"errors"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// Restore makes the rows those of a backup, which fit together. It leaves equal rows alone, and
// deletes rows that the backup does not have, except the node of the process.
func (tx *Txn) Restore(backup *store.Backup) error {
	keys := make(map[string]struct{}, len(backup.Keys))
	for _, row := range backup.Keys {
		keys[row.Key] = struct{}{}
		tx.Put(row.Key, row.Value, row.Flags)
	}
	for key, row := range tx.Prefix("") {
		if _, kept := keys[key]; !kept {
			tx.remove(row, ErrKeyDeleted)
		}
	}
	return tx.RestoreCatalog(backup)
}

// MarkRestored makes the transaction write even if no row differs, so that a file has the index
// that was carried over to it.
func (tx *Txn) MarkRestored() { tx.mark(markRestored) }

// RestoreCatalog is Restore for the catalog alone. It returns an error for rows that no
// call could have written, or that do not fit together.
func (tx *Txn) RestoreCatalog(backup *store.Backup) error {
	e := tx.engine
	kept := map[string]struct{}{Folded(e.config.Node): {}}
	for _, row := range backup.Nodes {
		kept[Folded(row.Name)] = struct{}{}
	}
	for _, row := range backup.Services {
		kept[CatalogKey(row.Node, row.ID)+"\x00service"] = struct{}{}
	}
	for _, row := range backup.Checks {
		kept[CatalogKey(row.Node, row.ID)+"\x00check"] = struct{}{}
	}
	for key, row := range e.rows.Nodes.Ascend("") {
		if _, ok := kept[key]; !ok {
			tx.removeNode(row)
		}
	}
	for key := range e.rows.Checks.Ascend("") {
		if _, ok := kept[key+"\x00check"]; !ok {
			tx.removeCheck(key)
		}
	}
	for key := range e.rows.Services.Ascend("") {
		if _, ok := kept[key+"\x00service"]; !ok {
			e.rows.Services.Delete(key)
		}
	}
	tx.cedeNodeID(backup)
	var errs []error
	for _, row := range backup.Nodes {
		errs = append(errs, tx.PutNode(row))
	}
	for _, row := range backup.Services {
		errs = append(errs, tx.PutService(row))
	}
	for _, row := range backup.Checks {
		errs = append(errs, tx.PutCheck(row))
	}
	return errors.Join(errs...)
}

// cedeNodeID takes the ID from the node of this process, which stays, if the backup has another
// node with that ID: otherwise the restore would rename this one (N5).
func (tx *Txn) cedeNodeID(backup *store.Backup) {
	own := tx.Node(tx.engine.config.Node)
	if own == nil || own.ID == "" {
		return
	}
	for _, row := range backup.Nodes {
		if row.ID == own.ID && Folded(row.Name) != Folded(own.Name) {
			tx.putNode(schema.Node{Name: own.Name, Address: own.Address, Meta: own.Meta})
			return
		}
	}
}
