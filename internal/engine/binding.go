package engine

import "strings"

// CatalogKey is the key under which something of a node is kept.
func CatalogKey(node, id string) string { return Folded(node) + "\x00" + Folded(id) }

// The statuses of a check that a rule names. Package catalog documents them all.
const (
	// Critical ends sessions.
	Critical = 0
	// Passing is the last one.
	Passing = 2
)

// bind and unbind keep e.bound: which sessions belong to a node, and to each of their checks.
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

// Folded is the form in which names of the catalog are compared (S39, N17). One that CheckNodeName
// takes has half as many bytes again at most.
func Folded(name string) string { return strings.ToLower(name) }
