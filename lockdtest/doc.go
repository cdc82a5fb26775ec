// Package lockdtest is for tests of code that takes locks: a database in memory, on a clock that
// stands still until the test moves it, with faults on demand.
//
//	func TestLateWrite(t *testing.T) {
//		db := lockdtest.New(t, nil)
//		...
//		db.Advance(10 * time.Second)
//		...
//	}
//
// The code under test is given [DB.DB], and [DB.Mock] if it tells the time itself. The database
// behaves as one on a file does, commits included, but that nothing is left of it. [DB.Advance]
// moves the clock from deadline to deadline: every session is renewed or ends, and every lock is
// granted, at the instant at which that is due, and when Advance returns, all of it has been told.
// What goroutines of the test do in answer is up to them:
//
//   - In a bubble of testing/synctest they have done it too, whenever the clock moves on. The
//     database has to be made inside the bubble; Advance fails the test otherwise.
//   - Outside, the test waits for what it wants to see: for a call to return, for Done of a lock or
//     session, or with [DB.WaitForWaiters] and [DB.WaitForKeepAlive] for a call to begin to wait.
//
// When the test is over the database is checked and closed. The test fails if calls still wait for
// locks, if a fault that it asked for never came about, or if the database's state is not
// consistent. A call whose context is the test's own, or comes from it, does not wait any more
// then: T.Context ends before anything is checked. So a call that the test has to have ended by
// itself is given another context, such as context.Background(). Sessions that live, locks that are
// held, and calls of KeepAlive and Watch end with the database, as with a program.
package lockdtest
