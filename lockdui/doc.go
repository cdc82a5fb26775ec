// Package lockdui shows a database in a browser: which lock is waited for longest, who holds it,
// since when, and who waits; the sessions and why the last of them ended; the history of one key;
// who waits for whom; and what the file costs. Handler is mounted beside a program's other pages,
// as net/http/pprof is; lockd serve has it at /ui/.
//
// A lock that is shared is one row with all its holders. An exclusive request waits for each of
// them, and a shared one behind it waits for that request, which it does not overtake.
//
// The pages need nothing but their own server. They are whole without JavaScript, and with it
// follow the database: each change is on the page some milliseconds after its commit. When the
// connection is cut the page says so, tries again, and says when it has caught up.
//
// The package sees what a user of lockd sees, and nothing else of it.
//
// # What it does not know
//
// When a session was made or ended is known as long as that event is kept (lockd.Options.History).
// A renewal of a session is no event: the page has it with its next look, within a second. A wait
// that ended without the lock, because its call gave up, is not kept: the history of a key has the
// waits of those that were granted it, and the ones that last.
package lockdui
