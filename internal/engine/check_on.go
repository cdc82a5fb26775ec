//go:build invariants

package engine

// largeState is the size from which the state is checked only from time to time, the more rarely
// the larger it is. A check after every transaction would take time in proportion to the square of
// the size.
const largeState = 500

// mustHold panics if the state is not consistent. It is called after every transaction and every
// batch.
func (e *Engine) mustHold() {
	size := uint64(e.rows.Rows() + len(e.locks))
	every := uint64(1)
	for every < size/8 { // a power of 2, so that it stays the same while the state grows
		every *= 2
	}
	if size > largeState && e.rows.Index()%every != 0 {
		return
	}
	if err := e.Check(); err != nil {
		panic("lockd: " + err.Error())
	}
}
