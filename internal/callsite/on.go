//go:build lockddebug

package callsite

import "runtime"

// Site is where a function was called: a stack. The zero value is an empty stack.
type Site struct {
	stack [24]uintptr
	depth int
}

// Here returns the stack of its caller.
func Here() (s Site) {
	s.depth = runtime.Callers(2, s.stack[:])
	return s
}

// Callers returns the stack, as runtime.Callers does: empty if there is none.
func (s *Site) Callers() []uintptr { return s.stack[:s.depth] }
