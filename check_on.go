//go:build invariants

package lockd

// checking is true: the state is checked, and every database looks for calls that would wait for
// themselves, as those of package lockdtest do in any build.
const checking = true

// A large state is checked only now and then: looking at all of it after every transaction takes
// time in proportion to its square.
const (
	largeState = 500
	nowAndThen = 128
)

// mustHold panics if the state is not consistent. It is called after every transaction and every
// batch.
func (db *DB) mustHold() {
	if db.store.Rows()+len(db.locks) > largeState && db.store.Index()%nowAndThen != 0 {
		return
	}
	if err := db.checkLocked(); err != nil {
		panic("lockd: " + err.Error())
	}
}
