package lockd

import (
	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/hub"
)

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

// name is what errors call the scope.
func (s Scope) name() string {
	if s.scope.Space == engine.SpaceSessions && s.scope.Match == hub.Exact {
		return SessionID([]byte(s.scope.Name)).String()
	}
	return s.scope.Name
}
