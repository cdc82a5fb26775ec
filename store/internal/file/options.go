package file

import (
	"io/fs"
	"time"

	"go.etcd.io/bbolt"
)

// Options says how a file is opened.
type Options struct {
	Timeout time.Duration // how long to wait for the file's lock; zero or less: one attempt
	Mode    fs.FileMode   // of a file that is created, before the umask; zero: 0600
	Hooks   Hooks

	// NoSync leaves it to the operating system when to write to disk. A crash of the process loses
	// nothing; a power cut may cost the whole file, not only its last commits. Without NoSync every
	// commit is on disk before it returns.
	NoSync bool

	AllowNetworkFS bool // also where the file's lock cannot be trusted

	// Existing makes an open return fs.ErrNotExist instead of creating a file: if there is no file,
	// or none any more when the file's lock is free.
	Existing bool
}

// bolt returns bbolt's options, for a wait of at most the given time.
func (o *Options) bolt(wait time.Duration) *bbolt.Options {
	return &bbolt.Options{
		Timeout: max(wait, 1), // bbolt waits for ever at zero
		// A map finds free pages fast in a file that was once large. The list of them stays in the
		// file: without it bbolt scans all pages at every open and failed commit, on a goroutine
		// whose panic cannot be recovered.
		FreelistType: bbolt.FreelistMapType,
		NoSync:       o.NoSync,
		NoStatistics: true,
	}
}

// Hooks are for tests that hold or fail a commit, or simulate a file system. A nil function does
// nothing, and so does the zero value. The hooks of a commit are called on the goroutine that
// commits; Synced and Changed also on the goroutine that runs a step of a checkpoint.
type Hooks struct {
	// BeforeCommit is called before anything is written. Its error fails the commit.
	BeforeCommit func() error

	// AfterCommit is called when the commit is in the file. Its error fails the commit
	// nevertheless, as if a disk reported a write as failed that it has done.
	AfterCommit func() error

	// Synced is called when all that was written is on disk, or would be without Options.NoSync.
	// One commit may sync several times. Its error fails the sync, as AfterCommit's fails the
	// commit.
	Synced func() error

	// Changed is called when a transaction of bbolt's has all its changes, and has yet to write
	// them.
	Changed func()

	// NetworkFS is called in place of the system. It returns the name of the network or shared file
	// system that the path is on; an empty string means none.
	NetworkFS func(path string) string

	// SyncFolder is called before a sync of the folder, when a file has got its name, or when it is
	// not known whether the name is on disk. Its error fails the sync.
	SyncFolder func(folder string) error
}

// Around calls commit between the hooks.
func (h *Hooks) Around(commit func() error) error {
	if h.BeforeCommit != nil {
		if err := h.BeforeCommit(); err != nil {
			return err
		}
	}
	if err := commit(); err != nil {
		return err
	}
	if h.AfterCommit != nil {
		return h.AfterCommit()
	}
	return nil
}

func (h *Hooks) synced() error {
	if h.Synced == nil {
		return nil
	}
	return h.Synced()
}
