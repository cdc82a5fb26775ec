package rival

import "github.com/hashicorp/go-memdb"

// MemDB is hashicorp/go-memdb, the engine under Consul's state: an immutable radix tree.
type MemDB struct {
	db    *memdb.MemDB
	index uint64
}

type memRow struct {
	Key    string
	Holder [16]byte
	Index  uint64
}

// MemDBSettings says how a MemDB is set.
func MemDBSettings() string {
	return "go-memdb: " + Version("github.com/hashicorp/go-memdb") +
		", one table, one unique index on the key; a transaction for each write"
}

// NewMemDB returns one that has a row for each key.
func NewMemDB(keys []string) (*MemDB, error) {
	db, err := memdb.NewMemDB(&memdb.DBSchema{Tables: map[string]*memdb.TableSchema{
		"locks": {Name: "locks", Indexes: map[string]*memdb.IndexSchema{
			"id": {Name: "id", Unique: true, Indexer: &memdb.StringFieldIndex{Field: "Key"}},
		}},
	}})
	if err != nil {
		return nil, err
	}
	m := &MemDB{db: db}
	tx := db.Txn(true)
	for _, key := range keys {
		m.index++
		if err := tx.Insert("locks", &memRow{Key: key, Index: m.index}); err != nil {
			return nil, err
		}
	}
	tx.Commit()
	return m, nil
}

func (m *MemDB) set(key string, holder [16]byte) error {
	m.index++
	tx := m.db.Txn(true)
	if err := tx.Insert("locks", &memRow{Key: key, Holder: holder, Index: m.index}); err != nil {
		tx.Abort()
		return err
	}
	tx.Commit()
	return nil
}

// Pair writes the key's row twice.
func (m *MemDB) Pair(key string) error {
	if err := m.set(key, someone); err != nil {
		return err
	}
	return m.set(key, [16]byte{})
}
