package lockd_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockd/lockd"
)

// Ensure that the refusal of a damaged file says what to do, once.
func TestOpen_G13_SaysWhatToDoWithADamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockd.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := lockd.Open(path, nil)
	want := "lockd: open: " + path + ": file is damaged: it is empty; the file is left as it is: " +
		"restore a backup, have Recover, or the command lockd recover, save what is whole in it, " +
		"or remove it to begin anew"
	if !errors.Is(err, lockd.ErrCorrupt) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Ensure that a missing folder is named, and said to be missing once.
func TestOpen_NamesAMissingFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "missing")
	path := filepath.Join(folder, "lockd.db")
	_, err := lockd.Open(path, nil)
	want := "lockd: open: " + path + ": its folder " + folder + " does not exist: make that first"
	if !errors.Is(err, fs.ErrNotExist) || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// Ensure that each write after the file was removed says so once.
func TestCommit_SaysOnceThatTheFileWasRemoved(t *testing.T) {
	onFile(t, func(h *harness) {
		h.must(os.Remove(h.path))
		want := ": the file was removed or replaced while it was open"
		for range 2 {
			err := second(h.Put("k", nil, nil))
			if !errors.Is(err, fs.ErrNotExist) || !strings.HasSuffix(err.Error(), want) ||
				strings.Count(err.Error(), "removed") > 1 ||
				strings.Contains(err.Error(), "not exist") {
				h.t.Errorf("got %v, want %q at the end", err, want)
			}
		}
	})
}
