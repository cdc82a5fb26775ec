package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

// Ensure that recover writes what it can read of a damaged file to a backup that restore takes,
// lists what is missing and tells so by its exit code, and does not touch the file.
func TestRecover(t *testing.T) {
	path, to := fileWith(t, "crimson"), filepath.Join(t.TempDir(), "saved")
	again := filepath.Join(t.TempDir(), "again.db")
	command(t, "", "recover", path, to).wants(t, 0, "")
	command(t, "", "restore", again, to).wants(t, 0, "")
	if value := valueIn(t, again); value != "crimson" {
		t.Errorf("got %q", value)
	}

	damaged := bytes.Replace(read(t, path), []byte("crimson"), []byte("crimsoN"), 1)
	write(t, path, damaged)
	command(t, "", "verify", path).wants(t, exitDamaged, "file is damaged")
	r := command(t, "", "recover", path, to)
	r.wants(t, exitDamaged, `missing: keys: "k": its checksum does not match`)
	r.wants(t, exitDamaged, "the backup is written, with 0 keys")
	other := filepath.Join(t.TempDir(), "other.db")
	command(t, "", "restore", other, to).wants(t, 0, "")
	command(t, "", "verify", other).wants(t, 0, "")
	if r := command(t, "", "recover", path, "-"); r.out != string(read(t, to)) {
		t.Errorf("to standard output: %+v", r)
	}
	if !bytes.Equal(read(t, path), damaged) {
		t.Error("the file was written to")
	}
}

// valueIn returns the value of the key that fileWith makes.
func valueIn(t *testing.T, path string) string {
	t.Helper()
	db := open(t, path)
	defer db.Close()
	e, _ := db.Get("k")
	return string(e.Value)
}

// Ensure that recover replaces nothing but a backup, and reports a file without anything of lockd,
// and a wrong command line.
func TestRecover_Refuses(t *testing.T) {
	path, notes := fileWith(t, "value"), filepath.Join(t.TempDir(), "notes")
	write(t, notes, []byte(strings.Repeat("notes ", 2000)))
	to := filepath.Join(t.TempDir(), "to")
	for _, test := range []struct {
		args      []string
		code      int
		complaint string
	}{
		{[]string{path}, exitUsage, "TO"},
		{[]string{path, path}, exitUsage, "is FILE itself"},
		{[]string{path, notes}, exitFailed, "recover: TO " + notes + ": it is there"},
		{[]string{notes, to}, exitDamaged, "not a bbolt file"},
		{[]string{path + ".none", to}, exitNotFound, "no such file"},
	} {
		command(t, "", append([]string{"recover"}, test.args...)...).
			wants(t, test.code, test.complaint)
	}
	if got := names(t, filepath.Dir(to)); len(got) > 0 {
		t.Errorf("left in the folder: %q", got)
	}
}
