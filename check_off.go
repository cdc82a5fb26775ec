//go:build !invariants

package lockd

// mustHold checks nothing: builds with the tag invariants do.
func (db *DB) mustHold() {}
