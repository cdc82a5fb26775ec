package rival

import (
	"errors"

	"github.com/tidwall/buntdb"
)

// Bunt is tidwall/buntdb: a tree in memory with a log of its writes in a file.
type Bunt struct{ db *buntdb.DB }

// BuntSettings says how a Bunt is set.
func BuntSettings() string {
	return "buntdb: " + Version("github.com/tidwall/buntdb") +
		", SyncPolicy Always, AutoShrinkDisabled"
}

// OpenBunt returns a new file at the path that has an item for each key.
func OpenBunt(path string, keys []string) (*Bunt, error) {
	db, err := buntdb.Open(path)
	if err != nil {
		return nil, err
	}
	err = db.SetConfig(buntdb.Config{SyncPolicy: buntdb.Always, AutoShrinkDisabled: true})
	if err == nil {
		err = db.Update(func(tx *buntdb.Tx) error {
			for _, key := range keys {
				if _, _, err := tx.Set(key, "", nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &Bunt{db}, nil
}

func (b *Bunt) set(key, holder string) error {
	return b.db.Update(func(tx *buntdb.Tx) error {
		_, _, err := tx.Set(key, holder, nil)
		return err
	})
}

// Pair sets the key's item in two transactions.
func (b *Bunt) Pair(key string) error {
	if err := b.set(key, "0123456789abcdef"); err != nil {
		return err
	}
	return b.set(key, "")
}

// Close closes the file.
func (b *Bunt) Close() error { return b.db.Close() }
