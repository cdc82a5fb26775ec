//go:build !invariants

package writer

// checking is false: builds with the tag invariants check themselves.
const checking = false
