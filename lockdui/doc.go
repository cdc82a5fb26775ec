// Package lockdui shows a database in a browser: which lock is waited for longest, who holds it,
// since when, and who waits; the sessions and why the last of them ended; the history of one key;
// who waits for whom; and what the file costs. Handler is mounted beside a program's other pages,
// like net/http/pprof; lockd serve has it at /ui/.
//
// A lock that is shared is one row with all its holders. An exclusive request waits for each of
// them, and a shared request behind it waits for the exclusive one, which it does not overtake.
//
// The pages need nothing but their own server. They are complete without JavaScript, and with
// JavaScript follow the database: each change is on the page some milliseconds after its commit.
// When the connection is cut the page says so, tries again, and says when it has caught up.
//
// The package sees what a user of lockd sees, and nothing else.
//
// # What it does not know
//
// When a session was made or ended is known as long as that event is kept (lockd.Options.History).
// A renewal of a session is not an event: the page shows it at its next look, within a second. A
// wait that ended without the lock, because its call gave up, is not kept: the history of a key has
// the waits that ended with a grant, and those that last.
package lockdui
