package engine

import (
	"encoding/json"
	"iter"
	"strings"

	"github.com/lockd/lockd/internal/schema"
)

const (
	// SemaphoreKey, after the prefix, is where a semaphore keeps its limit and holders.
	SemaphoreKey = "/.lock"

	// semaphoreFlags are on all keys of a semaphore: Consul's official client expects them.
	semaphoreFlags = 0xe0f69a2baa414de0

	// MaxLimit is the largest limit of a semaphore.
	MaxLimit = 1 << 20
)

// PrefixOf returns what comes before the key's last slash: the prefix of its semaphore, if any.
func PrefixOf(key string) string { return key[:max(0, strings.LastIndexByte(key, '/'))] }

func contenderKey(prefix string, id schema.ID) string { return prefix + "/" + id.UUID() }

// contenderOf returns the session that the key is the contender key of, or the zero ID.
func contenderOf(key string) schema.ID {
	prefix := PrefixOf(key)
	if len(key)-len(prefix) != 1+schema.UUIDSize {
		return schema.ID{}
	}
	id, ok := schema.ParseID(key[len(prefix)+1:])
	if !ok || contenderKey(prefix, id) != key {
		return schema.ID{}
	}
	return id
}

// roster is what a semaphore's key says. A limit of 0 means that there is no semaphore yet.
type roster struct {
	prefix  string
	limit   int
	holders map[schema.ID]bool
}

// rosterOf reads both forms of the holders: the object of the official client, with a name for each
// holder, and the list of the guide. It ignores the flags, which the guide does not set (X3).
func rosterOf(prefix string, row *schema.Key) (roster, error) {
	r := roster{prefix: prefix, holders: make(map[schema.ID]bool)}
	if row == nil || len(row.Value) == 0 {
		return r, nil
	}
	var text struct {
		Limit   int
		Holders json.RawMessage
	}
	err := json.Unmarshal(row.Value, &text)
	var names []string
	if err == nil && len(text.Holders) > 0 && text.Holders[0] == '{' {
		var object map[string]json.RawMessage
		err = json.Unmarshal(text.Holders, &object)
		for name := range object {
			names = append(names, name)
		}
	} else if err == nil && len(text.Holders) > 0 {
		err = json.Unmarshal(text.Holders, &names)
	}
	if err != nil {
		return r, conflict("%q is not that of a semaphore: %v", row.Key, err)
	}
	if text.Limit < 1 || text.Limit > MaxLimit {
		return r, conflict("%q is not that of a semaphore: its limit is %d", row.Key, text.Limit)
	}
	for _, name := range names {
		if id, ok := schema.ParseID(name); ok { // only a session can hold a slot
			r.holders[id] = true
		}
	}
	r.limit = text.Limit
	return r, nil
}

// begin gives a semaphore that does not exist yet the limit that a call has named.
func (r *roster) begin(limit int) error {
	if r.limit == 0 {
		r.limit = limit
	}
	if r.limit == 0 {
		return conflict("the semaphore has no limit: name one, or call SetLimit before")
	}
	return nil
}

// has reports whether the semaphore lists the holder of the contender key.
func (r roster) has(contender *schema.Key) bool {
	return contender != nil && r.holders[contender.Session]
}

// held yields the contender keys whose holders have a slot, as read returns them.
func (r roster) held(read func(key string) *schema.Key) iter.Seq[*schema.Key] {
	return func(yield func(*schema.Key) bool) {
		for id := range r.holders { // in any order: the rows are counted, or compared
			row := read(contenderKey(r.prefix, id))
			if row != nil && row.Session == id && !yield(row) {
				return
			}
		}
	}
}

// rosterOf reads the semaphore, as of the newest state.
func (tx *Txn) rosterOf(prefix string) (roster, error) {
	return rosterOf(prefix, tx.Get(prefix+SemaphoreKey))
}

// slotHolders yields the sessions that have a slot of the semaphore, in any order, with their
// handles.
func (tx *Txn) slotHolders(prefix string, yield func(*Session, *Hold) bool) {
	slots, err := tx.rosterOf(prefix)
	if err != nil {
		return // a call that waits is about to be told
	}
	for row := range slots.held(tx.Get) {
		if !yield(tx.engine.holder(row.Session), tx.engine.lockOf(row.Key).hold) {
			return
		}
	}
}
