//go:build invariants

package writer

// checking is true: every writer looks for calls that would wait for themselves, as the writers of
// package lockdtest do in any build.
const checking = true
