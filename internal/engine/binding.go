package engine

import "strings"

// CatalogKey returns the key under which a service or a check of a node is kept.
func CatalogKey(node, id string) string { return Folded(node) + "\x00" + Folded(id) }

// The statuses of a check that a rule names. Package catalog documents them all.
const (
	// Critical ends sessions.
	Critical = 0
	// Passing is the largest status.
	Passing = 2
)

// bind and unbind maintain e.bound: the sessions of each node, and those bound to each check.
func (e *Engine) bind(s *Session) {
	for _, key := range s.bindings() {
		if e.bound[key] == nil {
			e.bound[key] = make(map[*Session]struct{})
		}
		e.bound[key][s] = struct{}{}
	}
}

func (e *Engine) unbind(s *Session) {
	for _, key := range s.bindings() {
		if delete(e.bound[key], s); len(e.bound[key]) == 0 {
			delete(e.bound, key)
		}
	}
}

func (s *Session) bindings() []string {
	keys := []string{Folded(s.Row.Node)}
	for _, id := range s.Row.Checks {
		keys = append(keys, CatalogKey(s.Row.Node, id))
	}
	return keys
}

// Folded returns a name of the catalog in the form in which names are compared (S39, N17). If
// CheckNodeName accepts the name, that form is at most one and a half times as long.
func Folded(name string) string { return strings.ToLower(name) }
