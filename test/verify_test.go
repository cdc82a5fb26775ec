package lockd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// craft makes a file with the rows that fn puts, whatever they refer to.
func craft(t *testing.T, fn func(s *store.Store)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "crafted.db")
	s := store.New()
	if err := s.Open(path, store.Options{NoSync: true}); err != nil {
		t.Fatal(err)
	}
	fn(s)
	s.Seal()
	b := s.Take()
	if err := s.Write(b); err != nil {
		t.Fatal(err)
	}
	s.Publish(b)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// Ensure that a file with a row that names a missing one is refused, by Open, Verify and Compact,
// with the name of the missing row; and that the file is left as it is.
func TestVerify_References(t *testing.T) {
	id, absent := schema.ID{1}, schema.ID{2}
	for _, test := range []struct {
		name string
		put  func(s *store.Store)
		want string // empty: nothing is wrong
	}{
		{"Sound", func(*store.Store) {}, ""},
		{"Key", func(s *store.Store) {
			s.Keys.Put("k", schema.Key{Key: "k", Session: absent})
		}, `locked key "k" is of session`},
		{"ShareSession", func(s *store.Store) {
			putShare(s, "read", absent)
		}, `share of "read" is of session`},
		{"ShareKey", func(s *store.Store) {
			putShare(s, "gone", id)
		}, `of key "gone"`},
		{"ShareOfLocked", func(s *store.Store) {
			putShare(s, "held", id)
		}, `key "held" is locked by session 01000000-0000-0000-0000-000000000000, and shared`},
		{"Attachment", func(s *store.Store) {
			s.Attachments.Put("a", schema.Attachment{Name: "a", Session: absent})
		}, `attachment "a" is of session`},
		{"SessionNode", func(s *store.Store) {
			s.Sessions.Put(string(absent[:]), schema.Session{ID: absent, Node: "gone"})
		}, `of node "gone"`},
		{"SessionCheck", func(s *store.Store) {
			s.Sessions.Put(string(absent[:]), schema.Session{ID: absent, Node: "N",
				Checks: []string{"up", "gone"}})
		}, `of check "gone"`},
		{"Service", func(s *store.Store) {
			s.Services.Put("gone\x00s", schema.Service{Node: "gone", ID: "s"})
		}, `service "s" is of node "gone"`},
		{"CheckNode", func(s *store.Store) {
			s.Checks.Put("gone\x00c", schema.Check{Node: "gone", ID: "c"})
		}, `check "c" is of node "gone"`},
		{"CheckService", func(s *store.Store) {
			s.Checks.Put("n\x00c", schema.Check{Node: "n", ID: "c", ServiceID: "gone"})
		}, `check "c" is of service "gone"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := craft(t, func(s *store.Store) {
				s.Nodes.Put("n", schema.Node{Name: "n"})
				s.Services.Put("n\x00web", schema.Service{Node: "n", ID: "Web"})
				s.Checks.Put("n\x00up", schema.Check{Node: "n", ID: "up", ServiceID: "web"})
				s.Sessions.Put(string(id[:]), schema.Session{ID: id, Node: "N",
					Lifetime: uint8(lockd.Independent), Checks: []string{"Up"}})
				s.Keys.Put("held", schema.Key{Key: "held", Session: id, LockIndex: 1})
				s.Keys.Put("read", schema.Key{Key: "read", LockIndex: 1})
				putShare(s, "read", id)
				s.Attachments.Put("of", schema.Attachment{Name: "of", Session: id})
				test.put(s)
			})
			before := readFile(t, path)
			errs := map[string]error{"verify": lockd.Verify(path, nil), "open": openAndClose(path)}
			if test.want != "" {
				errs["compact"] = lockd.Compact(path, nil)
			}
			for what, err := range errs {
				switch {
				case test.want == "" && err != nil:
					t.Errorf("%s: got %v, want no error", what, err)
				case test.want == "":
				case !errors.Is(err, lockd.ErrCorrupt), !strings.Contains(err.Error(), test.want),
					!strings.Contains(err.Error(), path):
					t.Errorf("%s: got %v, want ErrCorrupt with %q and the path", what, err,
						test.want)
				}
			}
			if test.want != "" && !bytes.Equal(readFile(t, path), before) {
				t.Error("the file was written to")
			}
		})
	}
}

func putShare(s *store.Store, key string, id schema.ID) {
	row := schema.ShareKey(key, 7, id)
	s.Shares.Put(row, schema.Share{Row: row, LockIndex: 1})
}

func openAndClose(path string) error {
	db, err := lockd.Open(path, &lockd.Options{Sync: lockd.SyncNever})
	if err != nil {
		return err
	}
	return db.Close()
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// Ensure that Verify finds each damage that Open refuses, names it alike, and changes nothing; and
// that Compact does not touch such a file either.
func TestVerify_Damage(t *testing.T) {
	var path string
	onFile(t, func(h *harness) {
		for i := range 30 {
			h.put(fmt.Sprintf("key/%02d", i), strings.Repeat("v", 500), 0)
		}
		h.must(h.Close())
		path = h.path
	})
	intact := readFile(t, path)
	page := os.Getpagesize()
	refused := 0
	verify := func(what string, damaged []byte) {
		t.Helper()
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		err := lockd.Verify(path, nil)
		compacted := lockd.Compact(path, nil)
		if err != nil && !bytes.Equal(readFile(t, path), damaged) {
			t.Errorf("%s: the file was written to", what)
		}
		if (err == nil) != (compacted == nil) {
			t.Errorf("%s: compact: got %v, verify %v", what, compacted, err)
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		opened := openAndClose(path)
		if err == nil && opened == nil {
			return
		}
		refused++
		corrupt := errors.Is(err, lockd.ErrCorrupt) && errors.Is(opened, lockd.ErrCorrupt)
		foreign := errors.Is(err, lockd.ErrFormat) && errors.Is(opened, lockd.ErrFormat)
		if !corrupt && !foreign || reason(err) != reason(opened) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: verify: got %v, open %v", what, err, opened)
		}
	}
	for start := 0; start < len(intact); start += page {
		zeros := bytes.Clone(intact)
		clear(zeros[start : start+page])
		verify(fmt.Sprintf("page %d: zeros", start/page), zeros)
		flipped := bytes.Clone(intact)
		flipped[start+10] ^= 1
		flipped[start+100] ^= 1
		verify(fmt.Sprintf("page %d: two bits", start/page), flipped)
		verify(fmt.Sprintf("cut to page %d", start/page), intact[:start])
	}
	if refused < 10 {
		t.Errorf("refused %d times", refused)
	}
}

// reason is the error's text without the name of the operation.
func reason(err error) string {
	if err == nil {
		return ""
	}
	return strings.SplitN(err.Error(), ": ", 3)[2]
}

// Ensure that the functions that read a closed file refuse what is no file, and follow a symbolic
// link.
func TestVerify_FolderAndLink(t *testing.T) {
	file := craft(t, func(*store.Store) {})
	folder, link := t.TempDir(), filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	for what, call := range map[string]func(path string) error{
		"verify":  func(path string) error { return lockd.Verify(path, nil) },
		"compact": func(path string) error { return lockd.Compact(path, nil) },
		"backup":  func(path string) error { return lockd.BackupFile(path, io.Discard, nil) },
		"open":    openAndClose,
	} {
		if err := call(folder); !errors.Is(err, lockd.ErrFormat) {
			t.Errorf("%s of a folder: got %v, want ErrFormat", what, err)
		}
		if err := call(filepath.Join(file, "below")); err == nil {
			t.Errorf("%s of what is below a file succeeded", what)
		}
		if err := call(link); err != nil {
			t.Errorf("%s by a link: got %v", what, err)
		}
	}
}
