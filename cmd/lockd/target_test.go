package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Ensure that a file which is being made can be removed, although this process has it open.
func TestRemoveOpen(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "made"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	removeOpen(f)
	if _, err := os.Stat(f.Name()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want no file", err)
	}
}
