package table_test

import (
	"path/filepath"
	"testing"

	"github.com/lockd/lockd/store"
)

func newPath(t *testing.T) string { return filepath.Join(t.TempDir(), "lockd.db") }

// write commits what fn writes.
func write(s *store.Store, fn func()) error {
	fn()
	s.Seal()
	b := s.Take()
	if err := s.Write(b); err != nil {
		return err
	}
	s.Publish(b)
	return nil
}
