// Package lockd is a lock manager that a program links in: Chubby's and Consul's locks, sessions,
// lock-delays, watches and sequencers, in one process, in memory or on one file.
//
// # Model
//
// A database ([DB]) holds keys with values, as in Consul. Every change carries an index, which
// only rises. A session ([Session]) stands for a holder; it ends when its owner closes it, when it
// is not renewed within its TTL, when its process dies, or when the node or a check it is bound to
// goes. A session takes the lock of a key, which it may have to wait for ([Session.Lock]), and
// gets a handle ([Lock]), which alone releases it. When a session ends, its locks are released or
// their keys deleted, and for a lock-delay nobody gets them: a holder that was lost may still be at
// work. A lock is told lost by [Lock.Done]; late writes of a lost holder are refused by its
// [Sequencer], in lockd itself ([DB.If]) and, with a [Guard], anywhere.
//
// On top of these stand a [Keeper], which has one session that lives for as long as the program
// does, and elections: who holds the lock of a key leads ([Session.Campaign], [Keeper.Lead]), and
// everybody can follow who that is ([DB.Observe]).
//
// A semaphore ([Session.Acquire]) gives out a limited number of slots ([Slot]) in the same way: it
// is kept as Consul's official client does, and a slot is held as a lock is, and lost as one.
//
// Locks are advisory, as in Chubby and Consul: anyone may write or delete a locked key. Who wants
// a write to fail without the lock says so in it.
//
// # Promises
//
//   - G1: At any index at most one session holds a key's lock.
//   - G2: A write that returned nil is on disk (SyncAlways) and survives kill -9 and a power cut.
//     With SyncNever it survives kill -9; a power cut may cost the whole file.
//   - G3: A reader sees only what is durable, as one immutable snapshot; whoever is woken by a
//     change reads a state at least as new. Every answer, a success, a no-op or a refusal, is given
//     only when the state that it was decided on is durable.
//   - G4: Indexes strictly increase and are never used again, across crash, failed commit, restart
//     and restore. Indexes of users' changes start at 2 or above.
//   - G5: The end of a session is one atomic step at one index of its own: its removal, every
//     release or delete, every lock-delay.
//   - G6: A session never ends before its TTL has passed since its last successful renewal; a
//     renewal that returned nil guarantees one more TTL.
//   - G7: During a key's lock-delay no session is granted its lock. Delays survive a restart. A
//     voluntary unlock, or an owner that closes its own session, sets none.
//   - G8: Of two grants of one key in two transactions, the later has the larger fence, across
//     delete, restart and restore; of grants of two keys, the later never has the smaller one. All
//     grants of one transaction have its index as their fence: of two of one key, the later has the
//     larger lock index.
//   - G9: Waiters for a lock are served in the order in which they began to wait; nobody overtakes
//     them, by no door. One that gives up, or whose session ends, leaves the queue with an error
//     and never holds up the rest. G7 and G9 hold for slots of semaphores too, but only among those
//     who take them by this package: clients that go by a semaphore's keys do not queue. A session
//     whose slot was taken by force gets no other during its lock-delay: a call of it that waits
//     keeps its place, and those behind it are served meanwhile.
//   - G10: The loss of a lock is told (Done is closed) no later than anybody else is told of being
//     granted it.
//   - G11: A call that a rule refuses changes nothing; one that gives up waiting leaves nothing
//     held that its session did not hold before; one that ends in ErrCommit may be found in the
//     file by a later Open, whole or not at all. A nil handle never comes with a nil error.
//   - G12: Close ends every wait and every hold with ErrClosed and leaves no goroutine behind. Of a
//     session with lifetime Independent only the handles end: the file keeps it, with its locks,
//     unless it is a Keeper's.
//   - G13: A file that is damaged, in use by another process, or of a newer format is refused with
//     an error that says so, and left as it is, byte for byte.
//
// The rules in detail, by the numbers that the comments cite (K14, S32), are in doc/semantics.md;
// which test keeps which promise is in doc/promises.md.
//
// # Time
//
// Every deadline runs on Options.Clock, which is read in one place. Timers only wake, they decide
// nothing: something is due when the clock, read under the database's lock, says so, and then it
// happens, however late the timer was. At one instant renewals come before ends, and ends before
// grants. While the database is open a deadline is an instant of that clock, its monotonic reading
// included; only the file has wall time, for lock-delays that outlast a restart.
//
// # Writing and reading
//
// All writes go one way. Under one lock, held for no I/O, a call ends what is due, decides on the
// newest state, and joins the open batch. The first to join commits the batch, with one write to
// the file's log and one sync for all, while the next one fills; then the state is published, and
// those concerned are told: losses first, then watchers, then those who were granted something,
// then the callers. A batch that cannot be committed is taken back together with the one that was
// decided on it. Reads go to what is published, and wait for no commit; [DB.Get] takes no lock
// either.
//
// The function of a [DB.Update] has the turn: no other call writes until it has returned, but the
// lock is not held while it runs, so that calls which only look need not wait for it.
//
// The locks are taken in this order: the committer's, the turn, the database's, the hub's or that
// of an ending (a session's or lock's Done and Err).
//
// # Crash
//
// After a crash the file has some prefix of the batches, at least all that were answered. The next
// Open ends the sessions that were bound to the process, with their lock-delays; sessions with
// lifetime Independent go on, and their locks can be taken over again by [Session.Lock]. Of what a
// process had not answered when it was killed, the last batch may be read from then on. Open has it
// on disk before it returns: so no power cut takes back what any process has answered, nor has an
// index used again (G3, G4). With SyncNever it does not, as no write does.
//
// A commit of which it is not known whether it is in the file ends as a crash does, but that the
// process lives: [ErrFailed]. The next Open finds all of that commit or nothing. So a session with
// lifetime Independent may hold a lock then for which no handle was ever given, because the call
// returned ErrCommit or the error of its context. Nobody else gets it before that session takes it
// over and releases it, or ends: by its TTL, if it has one. The same goes for what else such a call
// was to write: who repeats it has to expect that it was done.
//
// A file that is damaged is refused (G13). What can be read of it [Recover] writes to a backup, and
// says what is missing and what may be older than what was committed last; [Restore] makes a new
// file of that. A newest commit that a disk has written by less than a sector of 512 bytes is such
// damage too: Recover leaves it out, and says so.
package lockd
