package lockd

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/hook"
	"github.com/lockd/lockd/store"
)

// Options configures a database. It is read once, and not kept.
type Options struct {
	// Clock is the clock of every deadline, a Clock of github.com/benbjohnson/clock. The default is
	// the real one, which in a bubble of testing/synctest is the bubble's. Its methods must not
	// wait, and must not call the database.
	Clock clock.Clock

	// Sync says when a write is durable.
	Sync SyncPolicy

	// Reopen says what Open does with sessions whose process is gone. By default it ends them with
	// their lock-delays: 15 s, unless SessionOptions.LockDelay says otherwise.
	Reopen ReopenPolicy

	// OpenTimeout is how long Open waits for a file that is in use. Zero means 1 s, NoWait not to
	// wait.
	OpenTimeout time.Duration

	// FileMode is the mode of a file that Open creates, before the umask. The default, and the
	// least, is 0o600.
	FileMode fs.FileMode

	// AllowNetworkFS lets Open take a file on a network or shared file system, such as NFS or FUSE.
	// Otherwise Open refuses those that it recognises: file locks may not work there, and two
	// databases on one file destroy it.
	AllowNetworkFS bool

	// History is how many events are kept, for Watch and DB.History. The default is 10,000. Events
	// of one commit are dropped together; if the events take more than 64 MiB, fewer are kept.
	History int

	// Logger gets records of grants and releases (Debug), losses and slow calls (Warn), and
	// failures (Error); doc/operations.md lists them. Nil means slog.Default(), read when the
	// database is opened; slog.DiscardHandler turns logging off.
	//
	// The handler runs on its own goroutine. Up to 4,096 records wait for it; further ones are
	// dropped (Stats.LogDrops), and those of Debug from 3,072 on. A handler must not call Close,
	// which waits for it.
	Logger *slog.Logger

	// Slow is how long a lock or a slot may be held, or waited for, before the Logger is told of
	// it: once for each grant and each call. The least is a millisecond; zero means never.
	Slow time.Duration

	// Node is the name of this process in the catalog, and the node of every session that names
	// none. The default is "local".
	Node string
}

// SyncPolicy says when a write is durable.
type SyncPolicy uint8

// The policies.
const (
	// SyncAlways syncs the file before a write returns (G2).
	SyncAlways SyncPolicy = iota
	// SyncNever leaves the sync to the operating system: a power cut may cost the whole file (G2).
	SyncNever
)

// ReopenPolicy says what Open does with sessions that were bound to a process which ended without
// Close.
type ReopenPolicy uint8

// The policies.
const (
	// EndBound ends these sessions, with ErrProcessGone and their lock-delays: what the dead
	// process has started elsewhere may still be at work.
	EndBound ReopenPolicy = iota
	// EndBoundWithoutDelay ends them without a lock-delay. It is for holders that do all of their
	// work in their process. A lock-delay that began before goes on.
	EndBoundWithoutDelay
	// EndNone lets them live on, each with a full TTL (S28).
	EndNone
)

// NoWait is the Options.OpenTimeout of an Open that does not wait.
const NoWait time.Duration = -1

const (
	defaultOpenTimeout = time.Second
	defaultHistory     = 10_000
	defaultNode        = "local"
)

// filled returns the options with defaults for the fields that are not set, or an error that names
// every field that is out of its bounds.
func (o *Options) filled() (Options, error) {
	var options Options
	if o != nil {
		options = *o
	}
	if err := options.validate(); err != nil {
		return Options{}, err
	}
	if options.Clock == nil {
		options.Clock = clock.New()
	}
	options.OpenTimeout = cmp.Or(options.OpenTimeout, defaultOpenTimeout)
	options.History = cmp.Or(options.History, defaultHistory)
	options.Node = cmp.Or(options.Node, defaultNode)
	return options, nil
}

// filledFor is filled for a call on the file at the path, which must not be empty or too long.
func (o *Options) filledFor(path string) (Options, error) {
	options, err := o.filled()
	return options, cmp.Or(err, engine.CheckName("path", path))
}

// file returns the store's part of filled options.
func (o *Options) file() store.Options {
	opts := store.Options{
		Timeout: o.OpenTimeout, Mode: o.FileMode, NoSync: o.Sync == SyncNever,
		AllowNetworkFS: o.AllowNetworkFS,
	}
	if test, ok := o.Clock.(*hook.Clock); ok {
		opts.Hooks = test.Hooks.File
	}
	return opts
}

func (o *Options) validate() error {
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
	faults = append(faults, engine.CheckTTL("Options.Slow", o.Slow))
	if o.Node != "" {
		faults = append(faults, engine.CheckNodeName("Options.Node", o.Node))
	}
	return errors.Join(faults...) // leaves out each nil
}
