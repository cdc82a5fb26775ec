package lockd

import (
	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Limits of what a database takes.
const (
	// MaxKeySize is the maximum size in bytes of a key, of the name of a session, node or
	// attachment, and of the ID of a service or check: 16 KiB.
	MaxKeySize = engine.MaxKeySize
	// MaxValueSize is the maximum size in bytes of a value: 64 MiB.
	MaxValueSize = engine.MaxValueSize
)

// Entry is a key as it was after one write.
type Entry struct {
	Key     string
	Value   []byte    // empty and absent are the same
	Flags   uint64    // the caller's; replaced by every write of the value
	Session SessionID // the holder, if the lock is held exclusively

	CreateIndex uint64 // of the write that created the key
	ModifyIndex uint64 // of the last write that changed anything
	LockIndex   uint64 // how often the free lock was granted since the key was created (R2)
	Fence       uint64 // the index of the last grant of the free lock, or of a Downgrade
}

// Sequencer returns the proof of the lock that the entry shows. If the lock is free or shared, it
// proves nothing, and DB.If refuses every write with it.
func (e Entry) Sequencer() Sequencer {
	return Sequencer{Key: e.Key, Session: e.Session, LockIndex: e.LockIndex, Fence: e.Fence}
}

func entryOf(row *schema.Key) Entry {
	if row == nil {
		return Entry{}
	}
	return Entry{
		Key: row.Key, Value: row.Value, Flags: row.Flags, Session: SessionID(row.Session),
		CreateIndex: row.CreateIndex, ModifyIndex: row.ModifyIndex,
		LockIndex: row.LockIndex, Fence: row.Fence,
	}
}

// PutOptions configures a write.
type PutOptions struct {
	// Flags is stored with the value.
	Flags uint64
}

func (o *PutOptions) flags() uint64 {
	if o == nil {
		return 0
	}
	return o.Flags
}

// Get returns the key's published entry, and whether there is one. It takes no lock and does not
// allocate.
func (db *DB) Get(key string) (Entry, bool) {
	row := db.rows.Keys.Get(key)
	return entryOf(row), row != nil
}

// Put sets the value and the flags of a key, creates the key if need be, and returns the new entry.
// The key's lock stays as it is, and need not be held (K1, K2): see If. Writing the same value and
// flags again moves no index and wakes no watcher (K3).
func (db *DB) Put(key string, value []byte, opts *PutOptions) (Entry, error) {
	row, err := write(db, "put", key, func(tx *engine.Txn) (*schema.Key, error) {
		return put(tx, key, value, opts)
	})
	return entryOf(row), err
}

// CompareAndSwap is as Put if the key's ModifyIndex is index, or, for index 0, if the key does not
// exist (K4 to K8). Otherwise it returns ErrConflict.
func (db *DB) CompareAndSwap(
	key string, index uint64, value []byte, opts *PutOptions,
) (Entry, error) {
	row, err := write(db, "compare and swap", key, func(tx *engine.Txn) (*schema.Key, error) {
		return compareAndSwap(tx, key, index, value, opts)
	})
	return entryOf(row), err
}

// Delete removes the key, locked or not, and reports whether there was one (K26, K27). The holder
// loses its lock, with ErrKeyDeleted and no lock-delay (K37). The first waiter is granted the lock
// at once, on a new key.
func (db *DB) Delete(key string) (bool, error) {
	return write(db, "delete", key, func(tx *engine.Txn) (bool, error) {
		return deleteKey(tx, key)
	})
}

// CompareAndDelete is as Delete if the key's ModifyIndex is index. Otherwise it returns ErrConflict
// (K29, K30). If there is no such key, it returns false and no error (K28).
func (db *DB) CompareAndDelete(key string, index uint64) (bool, error) {
	return write(db, "compare and delete", key, func(tx *engine.Txn) (bool, error) {
		return compareAndDelete(tx, key, index)
	})
}

// DeletePrefix deletes every key that begins with the prefix, as Delete does, and returns how many
// there were (K31, K32, K40). An empty prefix is ErrInvalid: see DeleteAll.
func (db *DB) DeletePrefix(prefix string) (int, error) {
	return write(db, "delete prefix", prefix, func(tx *engine.Txn) (int, error) {
		return deletePrefix(tx, prefix)
	})
}

// DeleteAll deletes every key, as Delete does, and returns how many there were. Sessions and the
// catalog stay.
func (db *DB) DeleteAll() (int, error) {
	return write(db, "delete all", "", func(tx *engine.Txn) (int, error) {
		return tx.DeletePrefix(""), nil
	})
}

// checkKey refuses what cannot be a key.
func checkKey(key string) error { return engine.CheckName("key", key) }

func put(tx *engine.Txn, key string, value []byte, opts *PutOptions) (*schema.Key, error) {
	if err := admit(key, value); err != nil {
		return nil, err
	}
	return tx.Put(key, value, opts.flags()), nil
}

func compareAndSwap(
	tx *engine.Txn, key string, index uint64, value []byte, opts *PutOptions,
) (*schema.Key, error) {
	if err := admit(key, value); err != nil {
		return nil, err
	}
	if err := tx.CheckIndex(key, index); err != nil {
		return nil, err
	}
	return tx.Put(key, value, opts.flags()), nil
}

// admit refuses what can be neither a key nor a value.
func admit(key string, value []byte) error {
	if err := checkKey(key); err != nil {
		return err
	}
	return engine.CheckValue(value)
}

func deleteKey(tx *engine.Txn, key string) (bool, error) {
	if err := checkKey(key); err != nil {
		return false, err
	}
	return tx.Delete(key), nil
}

func compareAndDelete(tx *engine.Txn, key string, index uint64) (bool, error) {
	if err := checkKey(key); err != nil {
		return false, err
	}
	return tx.CompareAndDelete(key, index)
}

func deletePrefix(tx *engine.Txn, prefix string) (int, error) {
	if prefix == "" {
		return 0, invalid("prefix is empty, which means every key: DeleteAll does that")
	}
	if err := engine.CheckName("prefix", prefix); err != nil {
		return 0, err
	}
	return tx.DeletePrefix(prefix), nil
}
