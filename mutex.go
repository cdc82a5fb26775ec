package lockd

import "sync"

// mutex is the mutex of a database. It is not locked while the function of an Update runs: what it
// protects changes then only within the methods of the Txn, which lock it. Calls that only read, or
// do no harm to the transaction, lock it with LockBeside, and wait for no function; all others wait
// for the end of it. So a function that hangs does not keep from view what has happened before.
type mutex struct {
	mutex sync.Mutex
	guest guest // protected by mutex

	// turn has the token of the Update that runs, from before it locks mutex until its function has
	// returned. It is taken before mutex, never under it. It is a channel and no mutex, so that in
	// a synctest bubble whoever waits for it counts as waiting.
	turn chan struct{}
}

// Lock locks the mutex when no function of an Update runs. It panics if it is called by that
// function itself, in a database that looks for it.
func (m *mutex) Lock() {
	m.mutex.Lock()
	if m.guest.tx != nil {
		m.await()
	}
}

// await goes on with Lock when the function that runs has returned.
func (m *mutex) await() {
	own := m.guest.isCaller()
	m.mutex.Unlock()
	if own {
		panic(misuse())
	}
	m.turn <- struct{}{}
	m.mutex.Lock() // and no function runs, for it would have the turn
	<-m.turn
}

// LockTurn is Lock for an Update, which gives back the turn when its function has returned.
func (m *mutex) LockTurn() {
	m.mustNotBeGuest()
	m.turn <- struct{}{}
	m.mutex.Lock()
}

// LockBeside locks the mutex, also while the function of an Update runs.
func (m *mutex) LockBeside() { m.mutex.Lock() }

// Unlock unlocks the mutex.
func (m *mutex) Unlock() { m.mutex.Unlock() }

// mustNotBeGuest panics if the function of an Update calls, in a database that looks for it.
func (m *mutex) mustNotBeGuest() {
	if !m.guest.checked {
		return
	}
	m.mutex.Lock()
	own := m.guest.isCaller()
	m.mutex.Unlock()
	if own {
		panic(misuse())
	}
}
