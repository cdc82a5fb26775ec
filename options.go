package lockd

import (
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/store"
)

// Options configures a database. A nil *Options and the zero value mean the defaults. It is read
// once, by New or Open, and not kept.
type Options struct {
	// Clock is what every deadline runs on. The default is the real clock; for tests, package
	// lockdtest has one that it moves. Its methods are called under the database's lock: they must
	// not wait, and must not call the database.
	Clock clock.Clock

	// Sync says when a write is durable. The default is SyncAlways.
	Sync SyncPolicy

	// Reopen says what becomes of sessions whose process is gone. The default ends those that
	// are bound to their process, and their lock-delays begin: after a crash nobody is granted
	// their locks for 15 s, unless their options say otherwise.
	Reopen ReopenPolicy

	// OpenTimeout is how long Open waits for a file that is in use. Zero means 1 s, and NoWait
	// not to wait.
	OpenTimeout time.Duration

	// FileMode is the mode of a file that Open creates, before the umask. The owner has to be able
	// to read and write it. The default is 0o600.
	FileMode fs.FileMode

	// AllowNetworkFS lets Open take a file on a network file system, or the like: NFS, SMB, 9p,
	// FUSE, the folders of a virtual machine's host. It is refused otherwise, where it can be
	// recognised (on Linux, macOS and Windows), since the lock on the file may not keep others out
	// there, and two databases on one file destroy it. Who sets it sees to that by other means.
	AllowNetworkFS bool

	// History is how many events are kept at least, for Watch and DB.History. The default is
	// 10,000. Those that became durable together, as those of one Update do, are kept until so many
	// have come after them: so a watcher that has seen all before them has the time of History more
	// events to read them, however many they are, and what is kept exceeds History by one commit at
	// most. Fewer are kept if keys, values and the like of them, before the change and after it,
	// would be more than 64 MiB; those of the last commit always are, until the next one.
	History int

	// Logger is told what happens. Nil means slog.Default(), as it is when the database is opened;
	// whether that one takes Debug is asked then, and not again. slog.DiscardHandler is how to be
	// silent, and costs nothing. The handler is called on a goroutine of its own, which a slow one
	// delays and nothing else: up to 4,096 records wait for it, and what comes then is dropped,
	// counted (Stats.LogDrops), and told of in a record. The last quarter of them is kept for
	// records above Debug. Close waits until all that waits is logged; a handler must not call it.
	//
	// A record has the time of the database's clock. Debug is "lock granted", "lock released",
	// "session created", and "session ended" if its owner closed it; Info if EndSession did. Warn
	// is "lock lost", and "session ended" otherwise; "commit slow" if one took a second or more;
	// "update slow" if the function of an Update has run for a second, while it runs, and once;
	// "checkpoint failed" if the file's log could not be emptied: for want of room, and commits
	// succeed until it is full, or because the disk is broken, and the next one fails; and "log
	// records dropped". Error is "commit failed", "database failed", and "leader panicked", as
	// soon as the function does that Keeper.Lead runs.
	//
	// The attributes are index, of the change; key, fence, session and name (of the session, if it
	// has one) of a lock; session, name and node of a session; cause, as text, of what was lost,
	// released or ended; error, of what failed; took and writers of a commit; took of an Update,
	// and caller, where it was called; panic, as text, and stack, of a leader, beside those of its
	// lock; and how many records were dropped as count.
	Logger *slog.Logger

	// Node is the name under which this process stands in the catalog, and the node of every
	// session that names none. The default is "local".
	Node string
}

// SyncPolicy says when a write is durable.
type SyncPolicy uint8

// The policies.
const (
	// SyncAlways syncs the file before a write returns: it survives a power cut (G2).
	SyncAlways SyncPolicy = iota
	// SyncNever leaves that to the operating system: a write survives the end of the process,
	// but a power cut may cost the whole file.
	SyncNever
)

// ReopenPolicy says what Open does with sessions that were bound to the process that had the
// file before, and that ended without Close.
type ReopenPolicy uint8

// The policies.
const (
	// EndBound ends them, with cause ErrProcessGone and their lock-delays: what the process that
	// died has set going elsewhere, such as a program that it started, may still be at work.
	EndBound ReopenPolicy = iota
	// EndBoundWithoutDelay ends them in the same way, and sets no lock-delay. It is for holders
	// that do all of their work in their process, which the lock on the file proves dead. A delay
	// that had begun before goes on.
	EndBoundWithoutDelay
	// EndNone lets them live on, with their TTLs anew (S28).
	EndNone
)

// NoWait as Options.OpenTimeout means that Open does not wait for a file that is in use.
const NoWait time.Duration = -1

const (
	defaultOpenTimeout = time.Second
	defaultFileMode    = fs.FileMode(0o600)
	defaultHistory     = 10_000
	defaultNode        = "local"
)

func (o *Options) clock() clock.Clock {
	if o == nil || o.Clock == nil {
		return clock.New()
	}
	return o.Clock
}

func (o *Options) history() int {
	if o == nil || o.History == 0 {
		return defaultHistory
	}
	return o.History
}

func (o *Options) node() string {
	if o == nil || o.Node == "" {
		return defaultNode
	}
	return o.Node
}

// logger returns the logger that is to be used instead of the default one, or nil.
func (o *Options) logger() *slog.Logger {
	if o == nil {
		return nil
	}
	return o.Logger
}

func (o *Options) reopen() ReopenPolicy {
	if o == nil {
		return EndBound
	}
	return o.Reopen
}

func (o *Options) file() store.Options {
	opts := store.Options{Timeout: defaultOpenTimeout, Mode: defaultFileMode}
	if o == nil {
		return opts
	}
	if o.OpenTimeout != 0 {
		opts.Timeout = o.OpenTimeout
	}
	if o.FileMode != 0 {
		opts.Mode = o.FileMode
	}
	if o.Sync == SyncNever {
		opts.Sync = store.SyncNever
	}
	opts.AllowNetworkFS = o.AllowNetworkFS
	if probe, ok := o.Clock.(*hook.Probe); ok {
		opts.Hooks = probe.File
	}
	return opts
}

// validate names every field that is out of its bounds.
func (o *Options) validate() error {
	if o == nil {
		return nil
	}
	var faults []error
	if o.Sync > SyncNever {
		faults = append(faults, invalid("Options.Sync is %d, not a SyncPolicy", o.Sync))
	}
	if o.Reopen > EndNone {
		faults = append(faults, invalid("Options.Reopen is %d, not a ReopenPolicy", o.Reopen))
	}
	if o.OpenTimeout < 0 && o.OpenTimeout != NoWait {
		faults = append(faults, invalid("Options.OpenTimeout is %v, below 0; NoWait means not to "+
			"wait", o.OpenTimeout))
	}
	if o.FileMode&^fs.ModePerm != 0 {
		faults = append(faults, invalid("Options.FileMode is %v, not just permissions",
			o.FileMode))
	} else if o.FileMode != 0 && o.FileMode&0o600 != 0o600 {
		faults = append(faults, invalid("Options.FileMode is %#o, but the owner of the "+
			"file has to read and write it: 0o600 at least", o.FileMode))
	}
	if o.History < 0 {
		faults = append(faults, invalid("Options.History is %d, below 0", o.History))
	}
	if err := engine.CheckNodeName("Options.Node", o.Node); o.Node != "" && err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}
