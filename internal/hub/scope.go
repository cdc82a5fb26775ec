package hub

import "strings"

// Match is how the name of a scope is compared. The zero value is Exact.
type Match uint8

// The ways to compare.
const (
	Exact  Match = iota // the same name
	Prefix              // every name that begins with it
)

// Scope is what a watcher watches. Scopes are comparable. The zero value covers nothing.
type Scope struct {
	Space byte // of the names; several spaces have the bits of all, none covers nothing
	Match Match
	Name  string
}

// covers reports whether what happens to name in space concerns the scope.
func (s Scope) covers(space byte, name string) bool {
	if space&s.Space == 0 {
		return false
	}
	if s.Match == Prefix {
		return strings.HasPrefix(name, s.Name)
	}
	return name == s.Name
}
