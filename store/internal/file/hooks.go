package file

// Hooks are for tests that hold or break a commit, or feign a file system. A nil function does
// nothing, and so does the zero value. Those of a commit are called on the goroutine that commits,
// and Synced and Changed are also on the one that takes a step of a checkpoint meanwhile.
type Hooks struct {
	// BeforeCommit is called before anything is written. Its error fails the commit.
	BeforeCommit func() error

	// AfterCommit is called when the commit is in the file. Its error makes it fail nevertheless,
	// as when a disk reports a write as failed that it has done.
	AfterCommit func() error

	// Synced is called when all that was written is on disk, or would be but for Options.NoSync.
	// One commit may do it some times. Its error fails the sync, as AfterCommit's does the commit.
	Synced func() error

	// Changed is called when a transaction of bbolt's has all its changes, and has yet to write
	// them.
	Changed func()

	// NetworkFS is asked in place of the system for the name of the network file system, or the
	// like, that the path is on; an empty string means none.
	NetworkFS func(path string) string

	// SyncFolder is called in place of what has the names in the folder on disk, when a file has
	// got its name. Its error is that of the call.
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

func (h *Hooks) changed() {
	if h.Changed != nil {
		h.Changed()
	}
}

func (h *Hooks) synced() error {
	if h.Synced == nil {
		return nil
	}
	return h.Synced()
}
