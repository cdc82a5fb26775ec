//go:build invariants

package writer

// checking is true: every writer panics at a call that would wait for itself, as the writers of
// package lockdtest do in any build.
const checking = true
