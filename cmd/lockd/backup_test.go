package main

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// Ensure that a backup replaces nothing but a backup or an empty file, so that it destroys no
// database that a process may have open, and that a refusal changes nothing.
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

// Ensure that a backup of another database cannot replace the database of a server, and that what
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

// Ensure that the backup of a served file comes from its server, by a port and by a socket, with a
// token and without, and equals the backup of the closed file.
func TestBackup_OfAServedFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for name, args := range map[string][]string{
		"Port": nil, "Socket": {"--http", "unix://" + filepath.Join(folder, "s")},
		"Token": {"--token", "t"},
	} {
		t.Run(name, func(t *testing.T) {
			path, to := fileWith(t, "value"), filepath.Join(t.TempDir(), "backup")
			s := served(t, append([]string{"--data", path}, args...)...)
			if name == "Token" {
				s.at("", "backup", "--wait", "0s", path, to).wants(t, exitInUse, "403: Permission")
				if len(names(t, filepath.Dir(to))) != 0 {
					t.Error("something is left")
				}
			}
			backup := func(args ...string) result {
				args = append([]string{"backup", "--wait", "0s", "--token", "t"}, args...)
				return s.at("", args...)
			}
			backup(path, to).wants(t, 0, "")
			link := filepath.Join(t.TempDir(), "link")
			if err := os.Symlink(path, link); err != nil {
				t.Fatal(err)
			}
			out := backup(link)
			out.wants(t, 0, "")
			s.end()
			restored := filepath.Join(t.TempDir(), "restored.db")
			command(t, "", "restore", restored, to).wants(t, 0, "")
			if got := valueOf(t, restored); got != "value" || out.out != string(read(t, to)) {
				t.Errorf("restored %q", got)
			}
		})
	}
}

// Ensure that the backup of one file is never taken for the backup of another: not from a server of
// another file, even a copy, nor from a server in memory, nor from a server that is not lockd.
func TestBackup_OfAServedFile_OnlyOfThatFile(t *testing.T) {
	t.Parallel()
	path, to := fileWith(t, "value"), filepath.Join(t.TempDir(), "backup")
	other := filepath.Join(t.TempDir(), "lockd.db")
	write(t, other, read(t, path))
	held := open(t, path)
	consul := httptest.NewServer(http.NotFoundHandler())
	defer consul.Close()
	for name, address := range map[string]string{
		"Copy": served(t, "--data", other).url, "Memory": served(t, "--memory").url,
		"Consul": consul.URL, "Nobody": nowhere,
	} {
		t.Run(name, func(t *testing.T) {
			r := command(t, "", "backup", "--wait", "0s", "--http-addr", address, path, to)
			r.wants(t, exitInUse, ", or name the server with --http-addr")
			want := lockclient.ErrOtherFile.Error()
			if name == "Nobody" {
				want = "no server can be reached at http://" + nowhere
			}
			if !strings.Contains(r.complaints, want) || len(names(t, filepath.Dir(to))) != 0 {
				t.Errorf("got %s", r.complaints)
			}
		})
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	command(t, "", "backup", "--http-addr", nowhere, path, to).wants(t, 0, "")
}

// Ensure that an answer that is cut off is never taken for a backup: the error says so, and the
// file that was there stays. The end of such an answer is the end of the connection, as a proxy
// that speaks HTTP/1.0 gives it, so that HTTP does not tell that something is missing.
func TestBackup_OfAServedFile_CutOff(t *testing.T) {
	t.Parallel()
	path, folder := fileWith(t, "value"), t.TempDir()
	to := filepath.Join(folder, "backup")
	whole := command(t, "", "backup", path).out
	id, err := fileID(path)
	if err != nil {
		t.Fatal(err)
	}
	held := open(t, path)
	for name, sent := range map[string]string{
		"Whole": whole, "Nothing": "", "NoRow": whole[:20], "NoSeal": whole[:len(whole)-32],
		"LastByte": whole[:len(whole)-1], "GoesOn": whole + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			answer := func(w http.ResponseWriter, _ *http.Request) {
				conn, _, err := http.NewResponseController(w).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				_, err = io.WriteString(conn, "HTTP/1.0 200 OK\r\n"+lockclient.FileHeader+": "+id+
					"\r\n\r\n"+sent)
				if err := errors.Join(err, conn.Close()); err != nil {
					t.Error(err)
				}
			}
			proxy := httptest.NewServer(http.HandlerFunc(answer))
			defer proxy.Close()
			backup := func(args ...string) result {
				args = append([]string{"backup", "--wait", "0s", "--http-addr", proxy.URL}, args...)
				return command(t, "", args...)
			}
			const old = "lockd backup, an older one"
			write(t, to, []byte(old))
			file, out := backup(path, to), backup(path)
			if out.out != sent {
				t.Errorf("standard output has %q", out.out)
			}
			want := old
			if name == "Whole" {
				want = whole
				file.wants(t, 0, "")
				out.wants(t, 0, "")
			} else {
				const cut = "the backup is cut off or damaged; "
				file.wants(t, exitFailed, cut+"ask again, and if a proxy is in between, name the "+
					"server itself with --http-addr; TO "+to+" is unchanged\n")
				out.wants(t, exitFailed, cut+"standard output has no whole one; ask again")
			}
			if got := string(read(t, to)); got != want || len(names(t, folder)) != 1 {
				t.Errorf("TO has %q; in the folder: %q", got, names(t, folder))
			}
		})
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
}

// Ensure that the ID of a file follows the file, and that no other file has it.
func TestFileID(t *testing.T) {
	path, link := fileWith(t, "a"), filepath.Join(t.TempDir(), "link")
	id := func(path string) string {
		t.Helper()
		id, err := fileID(path)
		if err != nil || len(id) != 64 {
			t.Fatal(id, err)
		}
		return id
	}
	first := id(path)
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if first != id(link) || first == id(fileWith(t, "a")) {
		t.Error("a link has another ID, or a copy the same")
	}
	if _, err := fileID(path + "absent"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// Ensure that a backup that fails for any reason says that the old one is unchanged.
func TestBackup_SaysUnchanged(t *testing.T) {
	to, notes := filepath.Join(t.TempDir(), "to"), filepath.Join(t.TempDir(), "notes")
	write(t, to, []byte("lockd backup, an older one"))
	write(t, notes, []byte("notes"))
	for name, args := range map[string][]string{
		"Damaged": {"backup", damaged(t), to}, "NotLockd": {"recover", notes, to},
	} {
		r := command(t, "", args...)
		if !strings.HasSuffix(r.complaints, "; TO "+to+" is unchanged\n") || r.code == 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
	if got := string(read(t, to)); got != "lockd backup, an older one" {
		t.Errorf("TO has %q", got)
	}
}

// Ensure that the error about a file in use names the process that has it open, and what to do.
func TestOnFile_InUse(t *testing.T) {
	path := fileWith(t, "v")
	db := open(t, path)
	for _, name := range []string{"verify", "compact", "serve"} {
		args := []string{name, "--wait", "0s", path}
		if name == "serve" {
			args = []string{name, "--wait", "0s", "--data", path}
		}
		r := command(t, "", args...)
		r.wants(t, exitInUse, path+": file is in use by this process, ")
		for _, want := range []string{"; end that process, or wait for longer with --wait; ",
			"if it is a lockd serve, use that: lockd kv, lockd locks, lockd backup"} {
			if !strings.Contains(r.complaints, want) {
				t.Errorf("%s: no %q in %s", name, want, r.complaints)
			}
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// Ensure that a backup replaces an empty file, such as mktemp makes, and that it replaces the file
// that a symbolic link leads to, not the link.
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

// Ensure that an error while a backup is written names the path that was asked for.
func TestBackup_NamesPath(t *testing.T) {
	to := filepath.Join(t.TempDir(), "absent", "backup")
	r := command(t, "", "backup", fileWith(t, "value"), to)
	r.wants(t, exitNotFound, "lockd: backup: TO "+to+": no file can be made there: ")
}
