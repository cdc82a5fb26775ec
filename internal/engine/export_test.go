package engine

import "time"

// ExtendAlone is Extend on a session that has nothing but its own memory.
func (s *Session) ExtendAlone(called time.Time) bool {
	rest := s.sessionRest
	s.sessionRest = nil
	defer func() { s.sessionRest = rest }()
	return s.Extend(called)
}
