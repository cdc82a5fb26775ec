package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/lockd/lockd"
)

// fileWith makes a file with a key k of that value, and returns its path.
func fileWith(t *testing.T, value string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lockd.db")
	db := open(t, path)
	if _, err := db.Put("k", []byte(value), &lockd.PutOptions{Flags: 7}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path string) *lockd.DB {
	t.Helper()
	db, err := lockd.Open(path, &lockd.Options{Sync: lockd.SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // most tests close it, and check the error
	return db
}

// valueOf returns the value of k in a file.
func valueOf(t *testing.T, path string) string {
	t.Helper()
	db := open(t, path)
	e, ok := db.Get("k")
	if err := db.Close(); err != nil || !ok || e.Flags != 7 {
		t.Errorf("%s: got %+v, %v, close %v", path, e, ok, err)
	}
	return string(e.Value)
}

// damaged returns the path of a file whose pages are zero from the second third on.
func damaged(t *testing.T) string {
	t.Helper()
	path := fileWith(t, strings.Repeat("v", 10_000))
	content := read(t, path)
	clear(content[len(content)/3:])
	write(t, path, content)
	return path
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Ensure that each command on a file tells by its exit code what is wrong with the file, and leaves
// the file as it is.
func TestOnFile_Refused(t *testing.T) {
	for _, name := range []string{"verify", "backup", "compact"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := damaged(t)
			before := read(t, path)
			r := command(t, "", name, path)
			r.wants(t, exitDamaged, path)
			if strings.Count(r.complaints, path) != 1 {
				t.Errorf("names the file more than once: %s", r.complaints)
			}
			if string(read(t, path)) != string(before) {
				t.Error("the damaged file was written to")
			}
			foreign := filepath.Join(t.TempDir(), "notes.txt")
			write(t, foreign, []byte(strings.Repeat("no database\n", 2000)))
			command(t, "", name, foreign).wants(t, exitDamaged, foreign)

			absent := filepath.Join(t.TempDir(), "absent.db")
			command(t, "", name, absent).wants(t, exitNotFound, "absent.db")
			if _, err := os.Stat(absent); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", absent, err)
			}
			db := open(t, fileWith(t, "v"))
			used := filepath.Join(filepath.Dir(path), "in; use.db")
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			db = open(t, used)
			r = command(t, "", name, "--wait", "1ms", used)
			r.wants(t, exitInUse, fmt.Sprint(os.Getpid()))
			r.wants(t, exitInUse, used)
			r.wants(t, exitInUse, "it was not closed within 1ms; ")
			r = command(t, "", name, "--wait", "0s", used)
			r.wants(t, exitInUse, "the call did not wait; ")
			if strings.Contains(r.complaints, "close it where") {
				t.Errorf("has the library's advice too: %s", r.complaints)
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Ensure that a file that cannot be written to is refused, with the reason and what to do.
func TestOnFile_ReadOnly(t *testing.T) {
	for _, cause := range []error{syscall.EACCES, syscall.EPERM, syscall.EROFS} {
		err := advisedReading(&lockd.Error{Op: "verify", Err: fmt.Errorf("lockd.db: %w", cause)})
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), "it has to be writable") {
			t.Errorf("%v: got %v", cause, err)
		}
	}
	for _, name := range []string{"verify", "backup"} {
		help := command(t, "", name, "--help").out
		if !strings.Contains(help, "FILE has to be writable") {
			t.Errorf("%s --help does not say so: %s", name, help)
		}
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() <= 0 {
				t.Skip("root may write to any file, and windows has no such modes")
			}
			path := fileWith(t, "value")
			if err := os.Chmod(path, 0o400); err != nil {
				t.Fatal(err)
			}
			command(t, "", name, path).wants(t, exitFailed, "copy it and name the copy")
		})
	}
}

func TestVerify(t *testing.T) {
	path := fileWith(t, "value")
	before := read(t, path)
	r := command(t, "", "verify", path)
	r.wants(t, 0, "")
	if r.out != "" || string(read(t, path)) != string(before) {
		t.Errorf("output %q, file changed: %v", r.out, string(read(t, path)) != string(before))
	}
}

// Ensure that restore reads a backup back, through standard output and input and through files.
func TestBackup_Restore(t *testing.T) {
	path := fileWith(t, "value")
	folder := filepath.Dir(path)
	in := func(name string) string { return filepath.Join(folder, name) }
	before := read(t, path)

	piped := command(t, "", "backup", path)
	piped.wants(t, 0, "")
	if r := command(t, "", "backup", path, "-"); r != piped {
		t.Error("with - it is another one")
	}
	write(t, in("backup"), []byte(command(t, "", "backup", fileWith(t, "yesterday's")).out))
	command(t, "", "backup", path, in("backup")).wants(t, 0, "")
	if string(read(t, in("backup"))) != piped.out {
		t.Error("the file has another backup than standard output")
	}
	if string(read(t, path)) != string(before) {
		t.Error("the file was written to")
	}
	info, err := os.Stat(in("backup"))
	if err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("the backup's mode is %v, %v", info.Mode(), err)
	}

	command(t, piped.out, "restore", in("one.db")).wants(t, 0, "")
	command(t, piped.out, "restore", in("two.db"), "-").wants(t, 0, "")
	command(t, "", "restore", in("three.db"), in("backup")).wants(t, 0, "")
	for _, name := range []string{"one.db", "two.db", "three.db"} {
		if got := valueOf(t, in(name)); got != "value" {
			t.Errorf("%s: got %q", name, got)
		}
	}
	if got := names(t, folder); len(got) != 5 {
		t.Errorf("left in the folder: %q", got)
	}
}

// Ensure that restore makes a file from a server's snapshot.
func TestRestore_Snapshot(t *testing.T) {
	db, server := testServer(t)
	if _, err := db.Put("k", []byte("v"), nil); err != nil {
		t.Fatal(err)
	}
	response, err := http.Get(server.URL + "/v1/snapshot")
	if err != nil {
		t.Fatal(err)
	}
	snapshot, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "made.db")
	half := string(snapshot[:len(snapshot)/2])
	command(t, half, "restore", path).wants(t, exitDamaged, "restore: file is damaged: ")
	command(t, string(snapshot), "restore", path).wants(t, 0, "")
	made, err := lockd.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e, _ := made.Get("k"); string(e.Value) != "v" {
		t.Errorf("%+v", e)
	}
	if err := made.Close(); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// Ensure that a restore refuses what it cannot do, and then leaves nothing behind.
func TestRestore_Refused(t *testing.T) {
	path := fileWith(t, "value")
	folder := filepath.Dir(path)
	backup := command(t, "", "backup", path).out
	before := read(t, path)

	command(t, backup, "restore", path).wants(t, exitFailed, "file already exists; it is not "+
		"replaced: name a new FILE, or move that one away first\n")
	made := filepath.Join(folder, "made.db")
	command(t, backup[:len(backup)-1], "restore", made).wants(t, exitDamaged,
		"; the backup comes from standard input\n")
	command(t, "", "restore", made, "-").wants(t, exitDamaged, "comes from standard input\n")
	command(t, "", "restore", made, path).wants(t, exitDamaged,
		"it is not a backup; the backup comes from "+path+"\n")
	command(t, "", "restore", made, made+".backup").wants(t, exitNotFound, "made.db.backup")
	if got := names(t, folder); len(got) != 1 || string(read(t, path)) != string(before) {
		t.Errorf("left in the folder: %q", got)
	}
}

// Ensure that a file which exists is refused before anything of the backup is read: it may be long,
// and come from a slow command.
func TestRestore_Refused_ReadsNothing(t *testing.T) {
	path := fileWith(t, "value")
	var complaints strings.Builder
	in := iotest.ErrReader(errors.New("the input was read"))
	code := run(t.Context(), []string{"lockd", "restore", path}, in, io.Discard, &complaints)
	result{code: code, complaints: complaints.String()}.wants(t, exitFailed, "already exists")
}

// Ensure that the indexes of a restored file are above the one asked for.
func TestRestore_MinIndex(t *testing.T) {
	path := fileWith(t, "value")
	backup := command(t, "", "backup", path).out
	made := filepath.Join(filepath.Dir(path), "made.db")
	const min uint64 = 1 << 62
	command(t, backup, "restore", "--min-index", fmt.Sprint(min), made).wants(t, 0, "")
	db := open(t, made)
	if e, _ := db.Get("k"); e.ModifyIndex <= min {
		t.Errorf("index %d, want one above %d", e.ModifyIndex, min)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// Ensure that a backup that cannot be written whole leaves the earlier backup.
func TestBackup_Fails(t *testing.T) {
	path := damaged(t)
	to := filepath.Join(filepath.Dir(path), "backup")
	yesterdays := command(t, "", "backup", fileWith(t, "yesterday's")).out
	write(t, to, []byte(yesterdays))
	command(t, "", "backup", path, to).wants(t, exitDamaged, path)
	if got := read(t, to); string(got) != yesterdays {
		t.Errorf("got %q", got)
	}
	if got := names(t, filepath.Dir(path)); len(got) != 2 {
		t.Errorf("left in the folder: %q", got)
	}
}

// Ensure that compact gives the free pages back, and says how much that was.
func TestCompact(t *testing.T) {
	path := fileWith(t, strings.Repeat("v", 1<<20))
	db := open(t, path)
	if _, err := db.Put("k", []byte("small"), &lockd.PutOptions{Flags: 7}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	was := len(read(t, path))
	r := command(t, "", "compact", path)
	r.wants(t, 0, "")
	is := len(read(t, path))
	if r.out != fmt.Sprintf("%d %d\n", was, is) || is > was/10 {
		t.Errorf("said %q, was %d, is %d", r.out, was, is)
	}
	if got := valueOf(t, path); got != "small" {
		t.Errorf("got %q", got)
	}
}
