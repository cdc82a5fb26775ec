//go:build invariants

package engine

// A large state is checked only from time to time: a check after every transaction would take time
// in proportion to the square of the size of the state.
const (
	largeState = 500
	nowAndThen = 128
)

// mustHold panics if the state is not consistent. It is called after every transaction and every
// batch.
func (e *Engine) mustHold() {
	if e.rows.Rows()+len(e.locks) > largeState && e.rows.Index()%nowAndThen != 0 {
		return
	}
	if err := e.Check(); err != nil {
		panic("lockd: " + err.Error())
	}
}
