//go:build invariants

package lockd

// mustHold panics if the state is not consistent.
func (db *DB) mustHold() {
	if err := db.checkLocked(); err != nil {
		panic("lockd: " + err.Error())
	}
}
