package hub

import "strings"

// Match is how the name of a scope is compared. The zero value is Exact.
type Match uint8

// The ways to compare.
const (
	Exact  Match = iota // the same name
	Prefix              // every name that begins with it
)

// Scope is what a watcher watches. Scopes are comparable. The zero value is the empty name in space
// 0.
type Scope struct {
	Space byte // keeps apart names that have nothing to do with each other
	Match Match
	Name  string
}

// covers reports whether what happens to name in space concerns the scope.
func (s Scope) covers(space byte, name string) bool {
	if space != s.Space {
		return false
	}
	if s.Match == Prefix {
		return strings.HasPrefix(name, s.Name)
	}
	return name == s.Name
}
