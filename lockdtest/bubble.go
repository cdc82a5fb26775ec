package lockdtest

import (
	"bytes"
	"runtime"
)

// inBubble reports whether the caller is in a bubble of testing/synctest.
func inBubble() bool {
	var stack [128]byte // begins as "goroutine 7 [running, synctest bubble 1]:"
	head, _, _ := bytes.Cut(stack[:runtime.Stack(stack[:], false)], []byte("]"))
	return bytes.Contains(head, []byte("synctest"))
}

// mustReach fails the test if its caller, the method, runs in a bubble and the database was made
// outside: the bubble does not wait for the database's goroutines, so the method would never
// return.
func (db *DB) mustReach(method string) {
	db.t.Helper()
	if !db.bubbled && inBubble() {
		db.t.Fatalf("lockdtest: %s inside a bubble of testing/synctest, on a database that was "+
			"made outside: call lockdtest.New in the function of synctest.Test", method)
	}
}
