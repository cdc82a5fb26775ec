// Package lockdui shows a database in a browser: which lock is waited for longest, who holds it,
// since when, and who waits; the sessions, and why the last hundred ended; the history of one key;
// who waits for whom; and the size of the file and the cost of commits. Handler is mounted beside a
// program's other pages, like net/http/pprof; lockd serve has it at /ui/.
//
// A lock that is shared is one row with all its holders. An exclusive request waits for each of
// them, and a shared request behind it waits for the exclusive one, which it does not overtake.
//
// The pages need nothing but their own server. They are complete without JavaScript, and with
// JavaScript follow the database. After a quiet time a change is on the page some milliseconds
// after its commit; many changes in a row are shown together, so that a viewer takes a small part
// of one core. When the connection is cut, the page says so, tries again, and says when it has
// caught up.
//
// The package uses only lockd's exported API.
//
// # What it does not know
//
// Handler learns of the beginnings and ends of sessions from the events that lockd keeps
// (lockd.Options.History). The beginning of a wait, the end of a wait without a grant, the end of a
// lock-delay and a renewal are not events: a page looks for them once a second, or less often if it
// takes long to make. A wait that ended without a grant, because its call gave up, is not kept: the
// history of a key has the waits that ended with a grant, and those that last.
package lockdui
