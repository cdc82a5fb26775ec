// Package hook is what tests may reach in a database that users may not, those of package lockdtest
// among them: hooks that the database calls, and a door to call it by.
//
// Both ride on the clock. A database under test needs a clock of the test's in any case, and gets
// it through its options; one that is a [*Clock] tells package lockd that there is more. So no
// option is exported for tests, no variable of a package is set by another, and a test may have as
// many databases as it likes. A database on any other clock knows nothing of this package.
//
// [Turns] go further: they decide which goroutine goes on, wherever one may have to wait. Such a
// database does not pace its commits.
package hook
