package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
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
	holders []schema.ID // in order; the list is never changed, so copies of a roster share it
	row     *schema.Key // of the key; nil if there is no semaphore yet

	// idle are the holders that do not hold their contender keys, as of the newest state. Only
	// Txn.rosterOf finds them.
	idle map[schema.ID]struct{}
}

// rosterOf reads both forms of the holders: the object of the official client, with a name for each
// holder, and the list of the guide. It ignores the flags, which the guide does not set (X3).
func rosterOf(prefix string, row *schema.Key) (roster, error) {
	r := roster{prefix: prefix}
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
		return r, conflict("the value of %q is not a semaphore's: %v", row.Key, err)
	}
	if text.Limit < 1 || text.Limit > MaxLimit {
		return r, conflict("the value of %q is not a semaphore's: its limit is %d", row.Key,
			text.Limit)
	}
	holders := make([]schema.ID, 0, len(names))
	for _, name := range names {
		if id, ok := schema.ParseID(name); ok { // only a session can hold a slot
			holders = append(holders, id)
		}
	}
	slices.SortFunc(holders, compareIDs)
	r.limit, r.holders, r.row = text.Limit, slices.Compact(holders), row
	return r, nil
}

func compareIDs(a, b schema.ID) int { return bytes.Compare(a[:], b[:]) }

// text returns the value of the key in the form of the official client, as JSON.
func (r roster) text() []byte {
	text := make([]byte, 0, 40+len(r.holders)*(schema.UUIDSize+8))
	text = append(text, fmt.Sprintf(`{"Limit":%d,"Holders":{`, r.limit)...)
	for i, id := range r.holders {
		if i > 0 {
			text = append(text, ',')
		}
		text = id.AppendUUID(append(text, '"'))
		text = append(text, `":true`...)
	}
	return append(text, "}}"...)
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

// names reports whether the session is among the holders.
func (r roster) names(id schema.ID) bool {
	_, found := slices.BinarySearchFunc(r.holders, id, compareIDs)
	return found
}

// with returns the roster with one more holder, which may be among them.
func (r roster) with(id schema.ID) roster {
	if at, found := slices.BinarySearchFunc(r.holders, id, compareIDs); !found {
		r.holders = slices.Insert(slices.Clip(r.holders), at, id)
	}
	return r
}

// has reports whether the semaphore lists the holder of the contender key.
func (r roster) has(contender *schema.Key) bool {
	return contender != nil && r.names(contender.Session)
}

// taken returns how many holders have their slots. The roster is that of Txn.rosterOf.
func (r roster) taken() int { return len(r.holders) - len(r.idle) }

// held yields the contender keys whose holders have a slot, as read returns them.
func (r roster) held(read func(key string) *schema.Key) iter.Seq[*schema.Key] {
	return func(yield func(*schema.Key) bool) {
		for _, id := range r.holders {
			row := read(contenderKey(r.prefix, id))
			if row != nil && row.Session == id && !yield(row) {
				return
			}
		}
	}
}

// longestHeld returns the contender key whose holder has had its slot for longest, or nil if there
// is none.
func longestHeld(held iter.Seq[*schema.Key]) (longest *schema.Key) {
	for row := range held {
		if longest == nil ||
			cmp.Or(cmp.Compare(row.Fence, longest.Fence), cmp.Compare(row.Key, longest.Key)) < 0 {
			longest = row
		}
	}
	return longest
}

// setIdle adds a holder that does not hold its contender key.
func (r *roster) setIdle(id schema.ID) {
	if r.idle == nil {
		r.idle = make(map[schema.ID]struct{})
	}
	r.idle[id] = struct{}{}
}
