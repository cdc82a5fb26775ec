package hub

import (
	"iter"
	"slices"
)

// space holds the topics of one name space. The hub's mutex guards it.
type space struct {
	name     byte
	exact    map[string]*Topic
	prefixes map[string]*Topic
	lengths  []length // of the prefixes, shortest first, no two the same
}

// length counts the prefixes of one length that are watched.
type length struct {
	bytes  int
	topics int
}

// newSpace returns a space without topics.
func newSpace(name byte) *space {
	return &space{
		name: name, exact: make(map[string]*Topic), prefixes: make(map[string]*Topic),
	}
}

// topics returns the map that holds the topics of scopes like this one.
func (s *space) topics(match Match) map[string]*Topic {
	if match == Prefix {
		return s.prefixes
	}
	return s.exact
}

// size returns the number of topics.
func (s *space) size() int { return len(s.exact) + len(s.prefixes) }

// find returns the topic of the scope, or nil.
func (s *space) find(scope Scope) *Topic { return s.topics(scope.Match)[scope.Name] }

// add adds a topic, whose scope must have none yet.
func (s *space) add(t *Topic) {
	s.topics(t.scope.Match)[t.scope.Name] = t
	if t.scope.Match == Prefix {
		i, found := s.search(len(t.scope.Name))
		if !found {
			s.lengths = slices.Insert(s.lengths, i, length{bytes: len(t.scope.Name)})
		}
		s.lengths[i].topics++
	}
}

// all yields every topic.
func (s *space) all() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for _, topics := range []map[string]*Topic{s.exact, s.prefixes} {
			for _, t := range topics {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// remove removes a topic, which must be there.
func (s *space) remove(t *Topic) {
	delete(s.topics(t.scope.Match), t.scope.Name)
	if t.scope.Match == Prefix {
		i, _ := s.search(len(t.scope.Name))
		s.lengths[i].topics--
		if s.lengths[i].topics == 0 {
			s.lengths = slices.Delete(s.lengths, i, i+1)
		}
	}
}

// fire removes and fires every topic that an event of this name and index concerns, and returns how
// many watchers they had.
func (s *space) fire(name string, index uint64) int {
	watchers := s.fireOne(Exact, name, index)
	// From the longest down, because remove may delete the length at hand and shifts those above.
	for i := len(s.lengths) - 1; i >= 0; i-- {
		if bytes := s.lengths[i].bytes; bytes <= len(name) {
			watchers += s.fireOne(Prefix, name[:bytes], index)
		}
	}
	return watchers
}

// fireOne is fire for the topic of one scope, if there is one.
func (s *space) fireOne(match Match, name string, index uint64) int {
	t := s.topics(match)[name]
	if t == nil {
		return 0
	}
	s.remove(t)
	t.fire(index)
	return t.watchers
}

// search returns where the length is, or belongs.
func (s *space) search(bytes int) (int, bool) {
	return slices.BinarySearchFunc(s.lengths, bytes, func(l length, bytes int) int {
		return l.bytes - bytes
	})
}
