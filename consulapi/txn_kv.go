package consulapi

import (
	"errors"
	"slices"

	"github.com/lockd/lockd"
)

// txnKV is an operation on a key (T3). Namespace and Partition mean nothing here.
type txnKV struct {
	Verb      string
	Key       string
	Value     []byte
	Flags     uint64
	Index     uint64
	Session   string
	Namespace string
	Partition string
}

func (op *txnKV) check() error {
	if op.Key == "" && op.Verb != "delete-tree" {
		return refused("Must provide key")
	}
	return nil
}

func (op *txnKV) writes() bool {
	return slices.Contains([]string{
		"set", "cas", "lock", "unlock", "delete", "delete-cas", "delete-tree",
	}, op.Verb)
}

// apply does what the verb says (T5).
func (op *txnKV) apply(on state) ([]txnResult, error) {
	switch tx := on.tx; op.Verb {
	case "set":
		return written(tx.Put(op.Key, op.Value, &lockd.PutOptions{Flags: op.Flags}))
	case "cas":
		e, err := tx.CompareAndSwap(op.Key, op.Index, op.Value,
			&lockd.PutOptions{Flags: op.Flags})
		if errors.Is(err, lockd.ErrConflict) {
			err = reword(err, "failed to set key %q, index is stale", op.Key)
		}
		return written(e, err)
	case "lock":
		return op.lock(tx)
	case "unlock":
		e, err := op.locking().release(tx)
		if errors.Is(err, lockd.ErrNotHeld) {
			err = reword(err, "failed to unlock key %q, lock isn't held, "+
				"or is held by another session", op.Key)
		}
		return written(e, err)
	case "get":
		e, exists := on.keys.Get(op.Key)
		if !exists {
			return nil, refused("key %q doesn't exist", op.Key)
		}
		return shown(e), nil
	case "get-tree":
		tree := entriesOf(on.keys, op.Key)
		if on.tx == nil {
			return []txnResult{{tree: tree}}, nil
		}
		return op.collect(tree, on.room)
	case "check-index", "check-session", "check-not-exists":
		return op.compare(on)
	case "delete":
		_, err := tx.Delete(op.Key)
		return nil, err
	case "delete-cas":
		_, err := tx.CompareAndDelete(op.Key, op.Index)
		if errors.Is(err, lockd.ErrConflict) {
			err = reword(err, "failed to delete key %q, index is stale", op.Key)
		}
		return nil, err
	case "delete-tree":
		if op.Key == "" {
			_, err := tx.DeleteAll()
			return nil, err
		}
		_, err := tx.DeletePrefix(op.Key)
		return nil, err
	}
	return nil, refused("unknown KV verb %q", op.Verb)
}

// maxCollected is how many entries all get-trees of a transaction that may write have together.
// While a transaction collects them no other can write, and they stay in memory until the client
// has taken the answer.
const maxCollected = 10_000

// collect reads a tree in a transaction that may write, since its other operations may change the
// tree. It refuses a tree with more entries than there is room for.
func (op *txnKV) collect(tree list[*entry], room *int) ([]txnResult, error) {
	var found []*entry
	for e := range tree {
		if *room == 0 {
			return nil, refused("failed to get tree %q, the trees of a transaction that may write "+
				"have at most %d entries: get them in a transaction that only reads", op.Key,
				maxCollected)
		}
		*room--
		found = append(found, e)
	}
	return []txnResult{{tree: listOf(found...)}}, nil
}

// lock takes the lock of the key. The lock-delay is checked when the lock would be taken, in the
// state that the transaction itself has made (X9).
func (op *txnKV) lock(tx *lockd.Txn) ([]txnResult, error) {
	e, err := op.locking().acquire(tx)
	if locked, is := errors.AsType[*lockd.LockedError](err); is {
		if locked.Obstacle == lockd.ObstacleDelay {
			err = reword(err, "failed to lock key %q due to lock delay", op.Key)
		} else {
			err = reword(err, "failed to lock key %q, lock is already held", op.Key)
		}
	}
	return written(e, err)
}

// locking is what the verbs lock and unlock ask for: an exclusive lock.
func (op *txnKV) locking() *locking {
	return &locking{key: op.Key, session: op.Session, value: op.Value, flags: op.Flags}
}

// compare does the verbs that only check something.
func (op *txnKV) compare(on state) ([]txnResult, error) {
	e, exists := on.keys.Get(op.Key)
	switch {
	case op.Verb == "check-not-exists":
		if exists {
			return nil, refused("key %q exists", op.Key)
		}
		return nil, nil
	case op.Verb == "check-index" && !exists:
		return nil, refused("failed to check index, key %q doesn't exist", op.Key)
	case op.Verb == "check-index" && e.ModifyIndex != op.Index:
		return nil, refused("failed index check for key %q, current modify index %d != %d",
			op.Key, e.ModifyIndex, op.Index)
	case op.Verb == "check-session" && !exists:
		return nil, refused("failed to check session, key %q doesn't exist", op.Key)
	case op.Verb == "check-session" && e.Session != sessionID(op.Session):
		return nil, refused("failed session check for key %q, current session %q != %q",
			op.Key, e.Session.String(), op.Session)
	}
	return written(e, nil)
}

// shown is the result of an operation that reads.
func shown(e lockd.Entry) []txnResult {
	return []txnResult{{KV: newEntry(e)}}
}

// written is the result of an operation that writes or checks: without the value.
func written(e lockd.Entry, err error) ([]txnResult, error) {
	if err != nil {
		return nil, err
	}
	e.Value = nil
	return shown(e), nil
}
