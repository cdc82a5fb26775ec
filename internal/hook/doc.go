// Package hook has what tests, those of package lockdtest among them, may reach in a database and
// users may not: hooks that the database calls, and controls by which tests call the database.
//
// Both ride on the clock. A database under test needs a clock of the test's in any case, and gets
// it through its options; a clock that is a [*Clock] tells package lockd that there is more. So no
// option is exported for tests, no variable of a package is set by another, and a test may have as
// many databases as it likes. A database on any other clock knows nothing of this package.
//
// [Turns] go further: they decide which goroutine goes on, wherever one may have to wait. A
// database with Turns does not pace its commits.
package hook
