package lockd

import (
	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/hub"
)

// Scope is what a watcher watches: one key, the keys with a prefix, the sessions, one session, or
// the catalog. It is comparable. The zero value covers nothing: its index is always 1, so that Wait
// from index 0 returns at once, as for any scope, and from 1 when its limit has passed.
type Scope struct{ scope hub.Scope }

// KeyScope is the scope of one key, whether it exists or not.
func KeyScope(key string) Scope {
	return Scope{hub.Scope{Space: engine.SpaceKeys, Match: hub.Exact, Name: key}}
}

// PrefixScope is the scope of every key that begins with the prefix; the empty one covers all keys.
func PrefixScope(prefix string) Scope {
	return Scope{hub.Scope{Space: engine.SpaceKeys, Match: hub.Prefix, Name: prefix}}
}

// SessionsScope is the scope of all sessions: their creation and end.
func SessionsScope() Scope {
	return Scope{hub.Scope{Space: engine.SpaceSessions, Match: hub.Prefix}}
}

// SessionScope is the scope of one session: its creation and end.
func SessionScope(id SessionID) Scope {
	return Scope{hub.Scope{Space: engine.SpaceSessions, Match: hub.Exact, Name: string(id[:])}}
}

// CatalogScope is the scope of all nodes, services, checks and attachments.
func CatalogScope() Scope {
	return Scope{hub.Scope{Space: engine.SpaceCatalog, Match: hub.Prefix}}
}

// name is what errors call the scope.
func (s Scope) name() string {
	if s.scope.Space == engine.SpaceSessions && s.scope.Match == hub.Exact {
		return SessionID([]byte(s.scope.Name)).String()
	}
	return s.scope.Name
}
