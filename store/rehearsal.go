package store

// Rehearse has s, which New made and nothing was written to, go through its batches as if it had a
// file, and keep nothing of them: a test that holds or fails commits needs no disk. Of the hooks
// only BeforeCommit and AfterCommit are called.
func (s *Store) Rehearse(hooks Hooks) {
	s.file = &rehearsal{hooks, header{index: s.index}}
}

// rehearsal stands in for the file.
type rehearsal struct {
	hooks Hooks
	last  header
}

func (r *rehearsal) commit(_ []rowWrite, last header) error {
	return r.hooks.around(func() error {
		r.last = last
		return nil
	})
}

func (r *rehearsal) secure() error { return nil }

func (r *rehearsal) tidy() (step func() error) { return nil }

func (r *rehearsal) untidy() bool { return false }

func (r *rehearsal) index() (uint64, error) { return r.last.index, nil }

func (r *rehearsal) tally() tally { return r.last.tally }

func (r *rehearsal) close() error { return nil }
