package hub

import "slices"

// topics are the topics that are watched, by their scopes. The hub's mutex guards them.
type topics struct {
	of    map[Scope]*Topic
	kinds []kind // of their scopes, no two the same
}

// kind is a kind of scopes: the exact ones, or the prefixes of one length, with the same spaces. An
// event is in one scope of each kind at most.
type kind struct {
	space  byte
	match  Match
	bytes  int // the length of the prefixes
	topics int // how many are watched
}

// add adds a topic, whose scope must have none yet.
func (s *topics) add(t *Topic) {
	s.of[t.scope] = t
	at := s.find(t.scope)
	if at < 0 {
		at = len(s.kinds)
		s.kinds = append(s.kinds, kindOf(t.scope))
	}
	s.kinds[at].topics++
}

// remove removes a topic, which must be there.
func (s *topics) remove(t *Topic) {
	delete(s.of, t.scope)
	at := s.find(t.scope)
	if s.kinds[at].topics--; s.kinds[at].topics == 0 {
		s.kinds = slices.Delete(s.kinds, at, at+1)
	}
}

// kindOf returns the kind of the scope, with no topics.
func kindOf(scope Scope) kind {
	k := kind{space: scope.Space, match: scope.Match}
	if scope.Match == Prefix {
		k.bytes = len(scope.Name)
	}
	return k
}

// find returns where the kind of the scope is, or -1.
func (s *topics) find(scope Scope) int {
	wanted := kindOf(scope)
	return slices.IndexFunc(s.kinds, func(k kind) bool {
		k.topics = 0
		return k == wanted
	})
}

// fire removes and fires every topic that an event of this name and index concerns, and returns how
// many watchers they had.
func (s *topics) fire(space byte, name string, index uint64) int {
	watchers := 0
	// From the last down, because remove may delete the kind at hand and shifts those behind it.
	for i := len(s.kinds) - 1; i >= 0; i-- {
		k := s.kinds[i]
		if k.space&space == 0 || k.bytes > len(name) {
			continue
		}
		scope := Scope{k.space, k.match, name}
		if k.match == Prefix {
			scope.Name = name[:k.bytes]
		}
		if t := s.of[scope]; t != nil {
			s.remove(t)
			t.fire(index)
			watchers += t.watchers
		}
	}
	return watchers
}
