package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Ensure that a backup is written over nothing but a backup or an empty file, so that no database
// is lost that somebody may have open, and that nothing has changed when it is refused.
func TestBackup_RefusesToReplace(t *testing.T) {
	path, folder := fileWith(t, "value"), t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	write(t, in("other.db"), read(t, fileWith(t, "other")))
	write(t, in("notes.txt"), []byte("notes"))
	err := errors.Join(
		os.Link(path, in("hard")), os.Symlink(path, in("soft")),
		os.Symlink(in("other.db"), in("soft-other")), os.Mkdir(in("folder"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	files := []string{path, in("other.db"), in("notes.txt")}
	before := contents(t, files)
	there := names(t, folder)
	for _, test := range []struct {
		to        string
		code      int
		complaint string
	}{
		{path, exitUsage, path + " is FILE itself: name another one; see lockd backup --help"},
		{in("hard"), exitUsage, "is FILE itself"},
		{in("soft"), exitUsage, "is FILE itself"},
		{in("other.db"), exitFailed, in("other.db") + ": it is there and is not a backup"},
		{in("soft-other"), exitFailed, in("soft-other") + ": it is there and is not a backup"},
		{in("notes.txt"), exitFailed, "so it is not replaced; name another file"},
		{in("folder"), exitFailed, "not a regular file"},
		{os.DevNull, exitFailed, "not a regular file, and is not replaced; name a file, or -"},
	} {
		t.Run(filepath.Base(test.to), func(t *testing.T) {
			command(t, "", "backup", path, test.to).wants(t, test.code, test.complaint)
			if !slices.Equal(contents(t, files), before) {
				t.Error("a file has changed")
			}
			if got := names(t, folder); !slices.Equal(got, there) {
				t.Errorf("left in the folder: %q", got)
			}
		})
	}
}

// contents returns what is in the files.
func contents(t *testing.T, paths []string) (all []string) {
	t.Helper()
	for _, path := range paths {
		all = append(all, string(read(t, path)))
	}
	return all
}

// Ensure that the database of a server cannot be replaced by a backup of another one, and that what
// is written to it afterwards is there when it is served again.
func TestBackup_ServedFile(t *testing.T) {
	t.Parallel()
	live := filepath.Join(t.TempDir(), "live.db")
	s := served(t, "--data", live)
	command(t, "", "backup", fileWith(t, "v"), live).wants(t, exitFailed, "is not a backup")
	s.at("", "kv", "put", "k", "v").wants(t, 0, "")
	s.end()
	s = served(t, "--data", live)
	if r := s.at("", "kv", "get", "k"); r.out != "v" {
		t.Errorf("got %+v", r)
	}
	s.end()
}

// Ensure that a file that is empty is replaced, as mktemp makes one, and that of a symbolic link it
// is the file that the link leads to.
func TestBackup_Replaces(t *testing.T) {
	path, folder := fileWith(t, "value"), t.TempDir()
	target, link := filepath.Join(folder, "target"), filepath.Join(folder, "link")
	write(t, target, nil)
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		command(t, "", "backup", path, link).wants(t, 0, "")
		if string(read(t, target)) != command(t, "", "backup", path).out {
			t.Error("the file that the link leads to has not the backup")
		}
	}
	if got := names(t, folder); len(got) != 2 {
		t.Errorf("left in the folder: %q", got)
	}
}

// Ensure that what goes wrong at writing a backup is told with the path that was asked for.
func TestBackup_NamesPath(t *testing.T) {
	to := filepath.Join(t.TempDir(), "absent", "backup")
	r := command(t, "", "backup", fileWith(t, "value"), to)
	r.wants(t, exitNotFound, "lockd: backup: TO "+to+": no file can be made there: ")
}
