package hub

import "slices"

// topics are the topics that are watched, by their scopes. The hub's mutex guards them.
type topics struct {
	of      map[Scope]*Topic
	lengths []length // of the prefixes among them, no two the same
}

// length counts the prefixes of one length that are watched in one space.
type length struct {
	space  byte
	bytes  int
	topics int
}

// add adds a topic, whose scope must have none yet.
func (s *topics) add(t *Topic) {
	s.of[t.scope] = t
	if t.scope.Match == Prefix {
		at := s.find(t.scope)
		if at < 0 {
			at = len(s.lengths)
			s.lengths = append(s.lengths, length{t.scope.Space, len(t.scope.Name), 0})
		}
		s.lengths[at].topics++
	}
}

// remove removes a topic, which must be there.
func (s *topics) remove(t *Topic) {
	delete(s.of, t.scope)
	if t.scope.Match == Prefix {
		at := s.find(t.scope)
		if s.lengths[at].topics--; s.lengths[at].topics == 0 {
			s.lengths = slices.Delete(s.lengths, at, at+1)
		}
	}
}

// find returns where the length of the scope's prefix is, or -1.
func (s *topics) find(scope Scope) int {
	return slices.IndexFunc(s.lengths, func(l length) bool {
		return l.space == scope.Space && l.bytes == len(scope.Name)
	})
}

// fire removes and fires every topic that an event of this name and index concerns, and returns how
// many watchers they had.
func (s *topics) fire(space byte, name string, index uint64) int {
	watchers := s.fireOne(Scope{space, Exact, name}, index)
	// From the last down, because remove may delete the length at hand and shifts those behind it.
	for i := len(s.lengths) - 1; i >= 0; i-- {
		if l := s.lengths[i]; l.space == space && l.bytes <= len(name) {
			watchers += s.fireOne(Scope{space, Prefix, name[:l.bytes]}, index)
		}
	}
	return watchers
}

// fireOne is fire for the topic of one scope, if there is one.
func (s *topics) fireOne(scope Scope, index uint64) int {
	t := s.of[scope]
	if t == nil {
		return 0
	}
	s.remove(t)
	t.fire(index)
	return t.watchers
}
