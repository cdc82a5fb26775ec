package file_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
)

// onNetwork puts every path on a network file system, and lists the paths that were asked about.
func onNetwork(name string) (hooks store.Hooks, asked *[]string) {
	asked = new([]string)
	hooks.NetworkFS = func(path string) string {
		*asked = append(*asked, path)
		return name
	}
	return hooks, asked
}

// Ensure that no file is made on a network file system, that the error names the file system and
// the option that allows it, and that the folder is asked about.
func TestOpenFile_NetworkFS_New(t *testing.T) {
	path := newPath(t)
	hooks, asked := onNetwork("NFS")
	f, err := file.OpenFile(path, store.Options{Hooks: hooks})
	if f != nil || !errors.Is(err, store.ErrInvalid) {
		t.Fatalf("got %v, %v", f, err)
	}
	for _, part := range []string{path, "NFS", "Options.AllowNetworkFS"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %q", part, err)
		}
	}
	if names := folder(t, path); len(names) != 0 {
		t.Errorf("it left %q in the folder", names)
	}
	if !slices.Equal(*asked, []string{filepath.Dir(path)}) {
		t.Errorf("asked about %q", *asked)
	}
}

// Ensure that a file on a network file system is refused, and left as it is. The file itself is
// asked about, which may be on another file system than the folder.
func TestOpenFile_NetworkFS_Existing(t *testing.T) {
	path := newPath(t)
	closeFile(t, openFile(t, path, quick))
	before := age(t, path)
	hooks, asked := onNetwork("SMB")
	f, err := file.OpenFile(path, store.Options{Hooks: hooks})
	if f != nil || !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), "SMB") {
		t.Fatalf("got %v, %v", f, err)
	}
	if stateOf(t, path) != before {
		t.Error("the file was changed")
	}
	if !slices.Equal(*asked, []string{path}) {
		t.Errorf("asked about %q", *asked)
	}
}

// Ensure that the option lets a network file system through, for a new file and an existing one.
func TestOpenFile_NetworkFS_Allowed(t *testing.T) {
	path := newPath(t)
	hooks, asked := onNetwork("NFS")
	for range 2 {
		closeFile(t, openFile(t, path, store.Options{Hooks: hooks, AllowNetworkFS: true}))
	}
	if len(*asked) > 0 {
		t.Errorf("asked about %q", *asked)
	}
}

// Ensure that a local file system is no obstacle, and that a folder that does not exist is reported
// as missing, not as a matter of the file system.
func TestOpenFile_NetworkFS_None(t *testing.T) {
	path := newPath(t)
	hooks, asked := onNetwork("")
	for range 2 {
		closeFile(t, openFile(t, path, store.Options{Hooks: hooks}))
	}
	if !slices.Equal(*asked, []string{filepath.Dir(path), path}) {
		t.Errorf("asked about %q", *asked)
	}
	for _, o := range []store.Options{{Hooks: hooks}, {}} {
		_, err := file.OpenFile(filepath.Join(filepath.Dir(path), "none", "lockd.db"), o)
		if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, store.ErrInvalid) {
			t.Errorf("got %v", err)
		}
	}
}

// Ensure that a file on a network file system is not compacted either, unless the option is set.
func TestCompact_NetworkFS(t *testing.T) {
	path := newPath(t)
	closeFile(t, openFile(t, path, quick))
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	hooks, _ := onNetwork("FUSE")
	if err := store.Compact(path, store.Options{Hooks: hooks}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the file was changed (%v)", err)
	}
	if err := store.Compact(path, store.Options{Hooks: hooks, AllowNetworkFS: true}); err != nil {
		t.Errorf("allowed: %v", err)
	}
}
