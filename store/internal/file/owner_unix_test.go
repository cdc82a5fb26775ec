//go:build unix

package file_test

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/lockd/lockd/store"
)

// Ensure that a file that another user compacts, such as root, keeps its owner, who could not open
// it otherwise. The test uses another owner and group where this process may set them.
func TestCompact_KeepsOwner(t *testing.T) {
	path, _ := toCompact(t)
	if err := os.Chown(path, 4711, 4712); err != nil && !errors.Is(err, syscall.EPERM) {
		t.Fatal(err)
	}
	before := owner(t, path)
	if err := store.Compact(path, store.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	if after := owner(t, path); after != before {
		t.Errorf("got %v, want %v", after, before)
	}
}

// owner returns the numbers of the file's owner and group.
func owner(t *testing.T, path string) [2]uint32 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	return [2]uint32{stat.Uid, stat.Gid}
}
