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
// The code under test is given the *lockd.DB in a [DB], and its Mock if it reads the time itself. A
// context of context.WithTimeout runs on another clock, which the Mock does not move: give a call
// that is to time out a context of the Mock's WithTimeout. Or use lockd.New in a bubble of
// testing/synctest: there the database, package context and package time run on one clock.
//
// The database behaves like one on a file, commits included, except that it leaves nothing behind.
// [DB.Advance] moves the clock from deadline to deadline: every session is renewed or ends, and
// every lock is granted, at the instant at which that is due. When Advance returns, every handle,
// waiting call and watcher has been told. What the goroutines of the test then do depends on where
// the test runs:
//
//   - In a bubble of testing/synctest they have done it before the clock moves on. The database has
//     to be made inside the bubble; otherwise Advance fails the test.
//   - Outside a bubble the test waits for what it wants to see: for a call to return, for Done of a
//     lock or session, or, with [DB.WaitForWaiters] and [DB.WaitForKeepAlive], for a call to begin
//     to wait.
//
// When the test is over the database is checked and closed. The test fails if calls still wait for
// locks, if a fault that the test asked for did not happen, or if the database's state is not
// consistent. A call whose context is the test's own, or is derived from it, no longer waits then:
// T.Context ends before anything is checked. So give another context, such as context.Background(),
// to a call that the test itself has to end. Sessions that live, locks that are held, and calls of
// KeepAlive and Watch end with the database, as they end with a program.
//
// # Schedules
//
// [Explore] looks for orders and faults that break the code under test. It runs a body many times,
// each time on a database of its own, in a bubble. The body starts its goroutines with [World.Go],
// and one of them runs at a time. A goroutine runs up to its next point, where the schedule says
// which goroutine goes on. A point is
//
//   - the beginning of a goroutine;
//   - the beginning of a call of lockd that takes the database's lock: one that writes, waits or
//     renews, and a Snapshot that has to be made;
//   - the moment before a commit, and after it the moment before the call that has committed
//     returns: meanwhile others are told of the commit, and act on it;
//   - the end of a wait, for a commit, a lock, a change or the end of a session;
//   - [World.Yield], [World.Await] and [World.Sleep].
//
// DB.Get and the other calls that take no lock are not points. Neither are the steps of the
// function of an Update (which must not call the methods of World), nor the body's own code, in
// which Yield makes a point. The schedule also orders the database's own goroutine.
//
// The plain order is by priorities, which the seed draws: of the goroutines that can go on, the one
// with the highest priority does, and time passes when none can. A schedule departs from that order
// in few places ([ExploreOptions.Changes]), because few are enough for most bugs. At such a place a
// goroutine is put behind all others, time passes although some could go on, a commit fails, the
// renewals of a session are lost, or a goroutine is paused for longer than its TTL. After a call of
// [World.Restart] the process may die too, the wall clock may be set back before the next process
// begins, or a commit that is in the file may be reported as failed. The database of such a
// schedule is on a file, which the next process opens.
//
// The first schedule has no change, and of two goroutines the one that began first has the higher
// priority. Of the other schedules every second one has that order too, and one change, until each
// kind of change has been tried at each step. The rest are drawn: in half of them the changes are
// close together, and some are repeated, because some bugs show only when a fault comes while the
// code handles another.
//
// After each step Explore checks the promises G1 and G10 by the handles that calls returned, G1, G7
// and G8 by the history, and G9 by the waiters (except where a call waits for several keys: a
// holder may pass it, R13), and the rules that the body adds by [World.Invariant]. What a call
// returns has to be published (G3), and Close of a database that has failed has to say so (G12). A
// schedule also fails if goroutines wait for ever, panic, or do not end.
//
// A session of the body's has to be kept alive, by a Keeper or KeepAlive. Otherwise it ends before
// the lock-delay of another is over, and hardly any schedule comes to a late write.
//
// A schedule that fails is printed step by step: the time, the goroutine, the point from which it
// went on, and what followed. The body has to do the same each time: no randomness, no iteration
// over a map, no goroutine that World.Go does not know, and no wait for anything but lockd,
// World.Await and World.Sleep. Then a seed always leads to the same steps. The clock does not stop
// for each timer of the body's: see [World.Clock].
package lockdtest
