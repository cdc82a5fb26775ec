package lockd

import (
	"iter"
	"slices"
	"strings"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/hub"
	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// Snapshot is the whole published state at one index. It never changes.
type Snapshot struct {
	rows *store.Snapshot
}

// Snapshot returns the published state. The first call after a write may sort the keys that were
// written since the last call; writers wait meanwhile.
func (db *DB) Snapshot() *Snapshot {
	db.writer.MustNotBeFunction() // first: a cached snapshot would hide the misuse
	rows := db.rows.Cached()
	if rows == nil {
		db.writer.Lock()
		rows = db.rows.Snapshot()
		db.writer.Unlock()
	}
	return &Snapshot{rows}
}

// Index returns the index of the newest transaction that the snapshot shows.
func (s *Snapshot) Index() uint64 { return s.rows.Index() }

// Get returns the key's entry, and whether there is one.
func (s *Snapshot) Get(key string) (Entry, bool) {
	row := s.rows.Keys.Get(key)
	return entryOf(row), row != nil
}

// Holders yields the holders of the key's lock, in the order of their grants: none, one, or all
// that share it.
func (s *Snapshot) Holders(key string) iter.Seq[Holder] {
	return slices.Values(holdersOf(engine.HoldersIn(s.rows, key)))
}

// Len returns the number of keys.
func (s *Snapshot) Len() int { return s.rows.Keys.Len() }

// Prefix yields the keys that begin with the prefix, in order, with their entries.
func (s *Snapshot) Prefix(prefix string) iter.Seq2[string, Entry] {
	return func(yield func(string, Entry) bool) {
		for key, row := range s.rows.Keys.Prefix(prefix) {
			if !yield(key, entryOf(row)) {
				return
			}
		}
	}
}

// Keys yields the keys that begin with the prefix, in order, each cut after the first separator
// that follows the prefix, and each result once (H10).
func (s *Snapshot) Keys(prefix, separator string) iter.Seq[string] {
	return func(yield func(string) bool) {
		last := "" // no key is empty
		for key := range s.Prefix(prefix) {
			folded := fold(key, prefix, separator)
			if folded == last {
				continue
			}
			if !yield(folded) {
				return
			}
			last = folded
		}
	}
}

// fold returns the part of a key that a listing at a separator shows: all of the key, or, if the
// separator occurs after the prefix, all up to the end of its first occurrence there (H10).
func fold(key, prefix, separator string) string {
	if separator == "" {
		return key
	}
	rest := key[len(prefix):]
	if at := strings.Index(rest, separator); at >= 0 {
		return key[:len(prefix)+at+len(separator)]
	}
	return key
}

// Session describes a session, and reports whether there is one.
func (s *Snapshot) Session(id SessionID) (SessionInfo, bool) {
	return infoOf(s.rows.Sessions.Get(string(id[:])))
}

// Sessions yields all sessions, in the order of their IDs (S2).
func (s *Snapshot) Sessions() iter.Seq[SessionInfo] {
	return func(yield func(SessionInfo) bool) {
		for _, row := range s.rows.Sessions.Prefix("") {
			if !yield(sessionInfo(row)) {
				return
			}
		}
	}
}

// Scope is what a watcher watches. It is comparable. The zero value covers nothing: its index is
// always 1.
type Scope struct{ scope hub.Scope }

// KeyScope is one key, whether it exists or not.
func KeyScope(key string) Scope {
	return Scope{hub.Scope{Space: engine.SpaceKeys, Match: hub.Exact, Name: key}}
}

// PrefixScope is every key that begins with the prefix.
func PrefixScope(prefix string) Scope {
	return Scope{hub.Scope{Space: engine.SpaceKeys, Match: hub.Prefix, Name: prefix}}
}

// SessionsScope is the creation and end of all sessions.
func SessionsScope() Scope {
	return Scope{hub.Scope{Space: engine.SpaceSessions, Match: hub.Prefix}}
}

// SessionScope is the creation and end of one session.
func SessionScope(id SessionID) Scope {
	return Scope{hub.Scope{Space: engine.SpaceSessions, Match: hub.Exact, Name: string(id[:])}}
}

// CatalogScope is all nodes, services, checks and attachments.
func CatalogScope() Scope {
	return Scope{hub.Scope{Space: engine.SpaceCatalog, Match: hub.Prefix}}
}

// events is the scope of the events that Watch yields: the shares of a lock do not change the index
// of its key (R2).
func (s Scope) events() hub.Scope {
	if s.scope.Space == engine.SpaceKeys {
		s.scope.Space |= engine.SpaceShares
	}
	return s.scope
}

// name is what errors call the scope.
func (s Scope) name() string {
	if s.scope.Space == engine.SpaceSessions && s.scope.Match == hub.Exact {
		return SessionID([]byte(s.scope.Name)).String()
	}
	return s.scope.Name
}

// IndexOf returns the index at which the scope changed last. The index never falls. It rises only
// if something in the scope changed, or, where something is absent, if keys with one of its
// prefixes were deleted together (I8) or old tombstones were dropped (X13, X14). By scope, it is:
//
//   - KeyScope: the key's ModifyIndex (I2), or the index of its deletion.
//   - PrefixScope: the highest of its keys and deletions (I4, I7), in time proportional to their
//     number.
//   - SessionScope: the index of its creation or end.
//   - SessionsScope and CatalogScope: the index of the last change.
func (s *Snapshot) IndexOf(scope Scope) uint64 {
	at := scope.scope
	switch {
	case at.Space == engine.SpaceKeys && at.Match == hub.Exact:
		if row := s.rows.Keys.Get(at.Name); row != nil {
			return row.ModifyIndex
		}
		return s.buried(engine.GraveKey, at.Name)
	case at.Space == engine.SpaceKeys:
		return s.indexOfPrefix(at.Name)
	case at.Space == engine.SpaceSessions && at.Match == hub.Exact:
		if row := s.rows.Sessions.Get(at.Name); row != nil {
			return row.CreateIndex
		}
		return s.buried(engine.GraveSession, at.Name)
	case at.Space == engine.SpaceSessions:
		return max(schema.FirstIndex, s.rows.Mark(engine.MarkSessions))
	case at.Space == engine.SpaceCatalog:
		return max(schema.FirstIndex, s.rows.Mark(engine.MarkCatalog))
	}
	return schema.FirstIndex
}

func (s *Snapshot) indexOfPrefix(prefix string) uint64 {
	index := s.buried(engine.GraveKey, prefix)
	for _, row := range s.rows.Keys.Prefix(prefix) {
		index = max(index, row.ModifyIndex)
	}
	for _, kind := range []byte{engine.GraveKey, engine.GravePrefix} {
		from := schema.GraveKey(kind, prefix)
		for _, grave := range s.rows.Graves.Prefix(from) {
			index = max(index, grave.Index)
		}
	}
	return index
}

// buried returns the newest index at which the absent name may have been deleted: that of its own
// tombstone, of a tombstone of one of its prefixes, or of the dropped tombstones.
func (s *Snapshot) buried(kind byte, name string) uint64 {
	index := max(schema.FirstIndex, s.rows.Mark(schema.FloorMark))
	if grave := s.rows.Buried(kind, name); grave != nil {
		index = max(index, grave.Index)
	}
	if kind == engine.GraveSession || !s.anyPrefixBuried() {
		return index
	}
	// A copy of each prefix would take time in proportion to the square of the length. No tombstone
	// of a prefix is longer than a key can be, but a name may be.
	longest := schema.GraveKey(engine.GravePrefix, name[:min(len(name), MaxKeySize)])
	for n := range len(longest) { // the first is the kind alone, of the empty prefix
		if grave := s.rows.Graves.Get(longest[:n+1]); grave != nil {
			index = max(index, grave.Index)
		}
	}
	return index
}

func (s *Snapshot) anyPrefixBuried() bool {
	for range s.rows.Graves.Prefix(schema.GraveKey(engine.GravePrefix, "")) {
		return true
	}
	return false
}
