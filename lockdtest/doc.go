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
//
// # Schedules
//
// [Explore] looks for orders and faults that break the code under test. It runs a body many times,
// each time on a database of its own, in a bubble. The body starts its goroutines by [World.Go],
// and one of them at a time runs. It runs up to its next point, and there the schedule says which
// one goes on. A point is
//
//   - the beginning of a goroutine;
//   - the beginning of a call of lockd that takes the database's lock: one that writes, waits or
//     renews, and a Snapshot that has to be made;
//   - the moment before a commit, and after it the moment before the call that has committed
//     returns: meanwhile others are told of the commit, and decide on it;
//   - the end of a wait, for a commit, a lock, a change or the end of a session;
//   - [World.Yield], [World.Await] and [World.Sleep].
//
// No point are DB.Get and the other calls that take no lock, what a function of an Update does (it
// must not call the methods of World), and the body's own code: Yield makes one. The goroutine that
// the database has of its own is one of those that the schedule knows.
//
// The plain order is one by priorities, which the seed draws: of the goroutines that can go on the
// first one does, and time passes when none can. A schedule departs from it in few places
// ([ExploreOptions.Changes]), because few are enough for most bugs: there a goroutine goes on after
// all others, time passes although some could go on, commits fail, renewals are lost, a goroutine
// is paused for longer than its TTL, the process dies, the wall clock is set back before the next
// one begins, or a commit is reported as failed that is in the file ([World.Restart]; the database
// of such a schedule is on a file, which the next process opens). In half of the schedules the
// changes are close together, and repeated: some bugs show only when a fault comes while another is
// dealt with.
//
// After each step Explore checks the promises G1 and G10 by the handles that calls returned, G1, G7
// and G8 by the history, and G9 by the waiters (but where a call waits for several keys, which a
// holder may pass: R13), and the rules that the body adds by [World.Invariant]. What a call returns
// has to be published (G3), and Close of a database that has failed has to say so (G12). A schedule
// also fails if goroutines wait for ever, panic, or do not end.
//
// What fails is printed step by step: the time, the goroutine, the point from which it went on, and
// what followed. The body has to do the same each time: no randomness, no order of a map, no
// goroutine that World.Go does not know, and no wait for anything but lockd and World.Await. Then
// the seed leads to the same steps, always.
package lockdtest
