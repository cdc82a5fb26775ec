package store

import "github.com/lockd/lockd/store/internal/format"

// Rehearse makes s, which must be new and unwritten, commit its batches as if it had a file. No
// file has them, so a test that holds or fails commits needs no disk. Of the hooks only
// BeforeCommit and AfterCommit are called.
func (s *Store) Rehearse(hooks Hooks) {
	s.file = &rehearsal{hooks: hooks, last: s.Index()}
}

// rehearsal stands in for the file.
type rehearsal struct {
	hooks Hooks
	last  uint64 // the last index that was committed
	left  format.Tally
}

func (r *rehearsal) Commit(_ []format.Write, index uint64, left format.Tally) error {
	return r.hooks.Around(func() error {
		r.last, r.left = index, left
		return nil
	})
}

func (r *rehearsal) Secure() error { return nil }

func (r *rehearsal) Tidy() (step func() error) { return nil }

func (r *rehearsal) Untidy() bool { return false }

func (r *rehearsal) Index() (uint64, error) { return r.last, nil }

func (r *rehearsal) Tally() format.Tally { return r.left }

func (r *rehearsal) Size() int64 { return 0 }

func (r *rehearsal) Close() error { return nil }
