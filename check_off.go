//go:build !invariants

package lockd

// checking is false: builds with the tag invariants check themselves.
const checking = false
