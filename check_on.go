//go:build invariants

package lockd

// checking is true: every database looks for calls that would wait for themselves, as those of
// package lockdtest do in any build.
const checking = true
