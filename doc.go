// Package lockd is a lock manager that a program links in: Chubby's and Consul's locks, sessions,
// lock-delays, watches and sequencers, in one process, in memory or on one file.
//
// # Model
//
// A database ([DB]) holds keys with values. Every change carries an index, which only rises. A
// session ([Session]) stands for a holder. It ends when its owner closes it, when it is not renewed
// within its TTL, when its process dies, or when its node or one of its checks is removed or fails.
//
// A session acquires the lock of a key ([Session.Lock]) and gets a handle ([Lock]), which releases
// the lock. When a session ends, its locks are released or their keys deleted. If the session was
// lost, no session is granted these locks during its lock-delay, because the lost holder may still
// be at work. [Lock.Done] reports the loss. A lock is held exclusively, or shared ([LockMode]). Its
// [Sequencer] fences off late writes: in lockd by [DB.If], elsewhere by a [Guard].
//
// A [Keeper] keeps one session alive while the program runs. In an election the holder of a key's
// lock leads ([Session.Campaign], [Keeper.Lead], [DB.Observe]). A semaphore ([Session.Acquire]) has
// a limited number of slots ([Slot]), each held, and lost, as a lock is.
//
// Locks are advisory: every caller may write or delete a locked key, but through [DB.If] only the
// holder.
//
// # Calls
//
// This section holds for all calls; the comment on a call says only what it adds.
//
//   - A call that writes blocks until its outcome is durable; if it is refused or changes nothing,
//     until the state that it was decided on is durable (G3). A method of [Txn] does not block.
//   - A call that writes returns [ErrInvalid] for an argument that is out of its bounds,
//     [ErrClosed] after [DB.Close], [ErrFailed] after the database has failed, and [ErrCommit] if
//     its commit did not succeed, with nothing changed.
//   - A call that waits takes a context, and returns the context's error if that ends first (G11).
//   - A call of a session that does not exist, has ended, or ends meanwhile, returns [ErrNoSession]
//     and the cause, if it is known.
//   - A call that only reads waits neither for the file nor for the function of an Update, and goes
//     on answering after Close. [DB.Session] does wait for that function, and so do [DB.Snapshot]
//     and the calls that need one: [DB.Wait], [DB.Follow], [DB.Observe] and [DB.Backup].
//   - An iterator that takes a context is for one loop. It blocks until it has something to yield,
//     and no writer waits for it. It ends with an error: the context's or ErrClosed.
//   - Errors are of type *[Error], except those of the caller's function, and the causes that the
//     Err of a handle returns. errors.Is and errors.As find in them the errors that a comment
//     names, and those of the caller's reader or writer.
//   - A nil context, function, reader or writer panics. Nil options mean the defaults.
//   - Values, slices and maps that a call returns are shared: do not change them.
//   - Many goroutines may use a value of any type, except a [Txn]. The zero value of a handle,
//     [DB], [Txn], [Snapshot], [Keeper] or [Fenced] is not usable. For any other type it means
//     none, or the defaults.
//
// # Promises
//
//   - G1: At any index a key's lock is free, or held by one session exclusively, or shared by any
//     number of holders.
//   - G2: A write that returned nil is on disk (SyncAlways) and survives kill -9 and a power cut.
//     With SyncNever it survives kill -9; a power cut may cost the whole file.
//   - G3: A reader sees only what is durable, as one immutable snapshot. A caller that is woken by
//     a change reads a state at least as new as that change. Every answer is given only when the
//     state that it was decided on is durable.
//   - G4: Indexes strictly increase and are never used again, across crash, failed commit, restart
//     and restore. Indexes of users' changes start at 2 or above.
//   - G5: The end of a session is one atomic step at one index of its own: its removal, every
//     release or delete, every lock-delay.
//   - G6: A session never ends before its TTL has passed since its last successful renewal; a
//     renewal that returned nil guarantees one more TTL.
//   - G7: During a key's lock-delay no session is granted its lock, or, if the lost holder shared
//     it, none exclusively. Delays survive a restart. A voluntary unlock, or an owner that closes
//     its own session, sets no delay.
//   - G8: Of two grants of one key in two transactions, the later has the larger fence, across
//     delete, restart and restore; of grants of two keys, the later never has the smaller fence.
//     All grants of one transaction have its index as their fence: of two exclusive grants of one
//     key, the later has the larger lock index.
//   - G9: Waiters for a lock are served in the order in which they began to wait; those in front
//     that can share it are served together. No call overtakes them, except that a request passes
//     the first waiter if that also waits for another lock, directly or through others, that the
//     request's session holds or its context carries: otherwise each would wait for the other
//     (R13). A waiter that gives up, or whose session ends, leaves the queue with an error and
//     never holds up the rest. G7 and G9 hold for slots of semaphores too, but only among callers
//     of this package. A session whose slot was taken by force gets no other during its lock-delay:
//     its waiting call keeps its place, and the calls behind it are served meanwhile.
//   - G10: The loss of a lock is told (Done is closed) no later than its next grant is told to
//     another caller.
//   - G11: A call that a rule refuses changes nothing. A call that gives up waiting leaves nothing
//     held that its session did not hold before. A write that ends in ErrCommit may be found in the
//     file by a later Open, whole or not at all. A nil handle never comes with a nil error.
//   - G12: Close ends every wait and every hold with ErrClosed and leaves no goroutine behind. For
//     an Independent session only the handles end: the file keeps the session, with its locks,
//     unless it is a Keeper's.
//   - G13: A file that is damaged, in use by another process, or of a newer format is refused with
//     an error that says so, and left as it is, byte for byte.
//
// The rules that the comments cite (K14, S32) are in doc/semantics.md.
//
// # Time
//
// Every deadline runs on Options.Clock. Timers only wake; the clock decides what is due. At one
// instant renewals come before ends, and ends before grants. The real clock is monotonic: no
// deadline moves when the time of the system is set, and on Linux and macOS deadlines stand still
// while the machine is suspended. Wall time decides only how much of a lock-delay is left after a
// restart; Event.Time, Holder.Since and the log tell it.
//
// # Crash
//
// After a crash the file has a prefix of the commits, with at least all that were acknowledged. The
// next Open ends the sessions that were bound to the process, with their lock-delays. [Independent]
// sessions go on, and [Session.Lock] takes their locks over.
//
// A commit whose outcome is unknown makes the database fail ([ErrFailed]); the next Open finds all
// of the commit or nothing. A caller that repeats such a write has to expect that it was done, and
// an Independent session may hold a lock for which no handle was given (doc/operations.md). A
// damaged file is refused; [Recover] and [Restore] save what can be read of it.
package lockd
