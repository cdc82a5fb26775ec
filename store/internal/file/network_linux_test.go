package file_test

import (
	"path/filepath"
	"testing"

	"github.com/lockd/lockd/store/internal/file"
)

// Ensure that the system is asked: /proc is not on a network, nor is a path that does not exist.
func TestNetworkFS_Local(t *testing.T) {
	for _, path := range []string{"/proc", filepath.Join(t.TempDir(), "none")} {
		if got := file.NetworkFS(path); got != "" {
			t.Errorf("%s: got %q", path, got)
		}
	}
}
