package engine

import (
	"iter"
	"slices"
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// Holder is one grant of a lock that is held. Package lockd documents it.
type Holder struct {
	Grant   Sequencer
	Session *schema.Session
	Since   time.Time // zero if it is not known
}

// holderOf returns the holder of a share.
func holderOf(row *schema.Share, session *schema.Session) Holder {
	return Holder{SequencerOfShare(row), session, row.Granted}
}

// Holders returns the holders of the key's lock, in the order of their grants.
func (tx *Txn) Holders(key string) []Holder {
	e := tx.engine
	return holders(e.rows.Keys.Newest(key), e.rows.Shares.Prefix(schema.SharePrefix(key)),
		func(id schema.ID) *schema.Session { return e.holder(id).Row })
}

// HoldersIn is Txn.Holders for a snapshot. It may be called without the caller's lock.
func HoldersIn(s *store.Snapshot, key string) []Holder {
	return holders(s.Keys.Get(key), s.Shares.Prefix(schema.SharePrefix(key)),
		func(id schema.ID) *schema.Session { return s.Sessions.Get(string(id[:])) })
}

// holders returns the holder in the row of the key, or those in the shares of its lock.
func holders(
	row *schema.Key, shares iter.Seq2[string, *schema.Share],
	session func(id schema.ID) *schema.Session,
) []Holder {
	if isLocked(row) {
		return []Holder{{SequencerOf(row), session(row.Session), row.Granted}}
	}
	var list []Holder
	for _, row := range shares {
		list = append(list, holderOf(row, session(row.Session())))
	}
	return list
}

// sharers is the list of the holders that share a lock in the published state. Many calls may give
// up at once on a lock that many sessions share. If each call made the list, writers would wait for
// a time in proportion to the product of both numbers (BenchmarkGiveUp_Shared).
type sharers struct {
	of      lockAt
	holders []Holder
}

// lockAt is a lock in one state, which the indexes identify.
type lockAt struct {
	key               string
	published, newest uint64
}

// sharersOf is publishedHolders, with the last list kept. The caller must not change the list.
func (e *Engine) sharersOf(key string) []Holder {
	of := lockAt{key, e.rows.Published(), e.rows.Index()}
	if e.sharers.of != of {
		e.sharers = sharers{of, e.publishedHolders(key)}
	}
	return e.sharers.holders
}

// slotsHeld says how the slots of a semaphore are held in the published state. It is kept for the
// reason for which sharers is.
type slotsHeld struct {
	of      lockAt
	slots   roster // without the holders
	err     error  // the key's value is not a semaphore's
	taken   int
	longest *schema.Key // see longestHeld
}

// publishedSlots returns how the slots of the semaphore that has the key are held.
func (e *Engine) publishedSlots(key string) *slotsHeld {
	held := &e.slotsHeld
	of := lockAt{key, e.rows.Published(), e.rows.Index()}
	if held.of != of {
		slots, err := rosterOf(PrefixOf(key), e.rows.Keys.Get(key))
		rows := slices.Collect(slots.held(e.rows.Keys.Get))
		*held = slotsHeld{
			of: of, slots: roster{prefix: slots.prefix, limit: slots.limit}, err: err,
			taken: len(rows), longest: longestHeld(slices.Values(rows)),
		}
	}
	return held
}

// publishedHolders returns the holders that share a lock in the published state. It looks among the
// present shares, and among the given rows, of which some have ended since.
func (e *Engine) publishedHolders(key string, ended ...*schema.Share) []Holder {
	var names []string // of rows, which are in the order of their grants
	if state := e.locks[key]; state != nil {
		for _, one := range state.shares.inOrder() {
			names = append(names, one.row.Row)
		}
	}
	for _, row := range ended {
		names = append(names, row.Row)
	}
	slices.Sort(names)
	var holders []Holder
	for _, name := range slices.Compact(names) {
		if row := e.rows.Shares.Get(name); row != nil {
			id := row.Session()
			holders = append(holders, holderOf(row, e.rows.Sessions.Get(string(id[:]))))
		}
	}
	return holders
}
