package lockd_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that options out of their bounds are refused, by New and by Open, with an error that names
// the field and the rule, and that Open makes no file.
func TestOptions_Refused(t *testing.T) {
	for name, test := range map[string]struct {
		opts lockd.Options
		text string
	}{
		"Sync":     {lockd.Options{Sync: 2}, "Options.Sync is 2, not a SyncPolicy"},
		"Reopen":   {lockd.Options{Reopen: 3}, "Options.Reopen is 3, not a ReopenPolicy"},
		"Timeout":  {lockd.Options{OpenTimeout: -2}, "Options.OpenTimeout is -2ns, below 0"},
		"FileMode": {lockd.Options{FileMode: fs.ModeDir | 0o600}, "Options.FileMode is d"},
		"FileModeOfAReader": {lockd.Options{FileMode: 0o400}, "Options.FileMode is 0400, but " +
			"the owner of the file has to read and write it: 0o600 at least"},
		"FileModeOfOthers": {lockd.Options{FileMode: 0o177}, "Options.FileMode is 0177, but"},
		"History":          {lockd.Options{History: -1}, "Options.History is -1, below 0"},
		"Slow":             {lockd.Options{Slow: -1}, "Options.Slow is -1ns, below 0"},
		"SlowWithoutUnit":  {lockd.Options{Slow: 5}, "Options.Slow is 5ns, below 1ms; was a unit"},
		"Node": {lockd.Options{Node: strings.Repeat("n", lockd.MaxKeySize+1)},
			"Options.Node has 16385 bytes, more than 16384"},
		"NodeOfOtherBytes": {lockd.Options{Node: "a\xff"}, `Options.Node "a\xff" is not UTF-8`},
		"NodeWithZeroByte": {lockd.Options{Node: "a\x00b"}, "Options.Node \"a\\x00b\" has a zero"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "lockd.db")
			for _, open := range []func() (*lockd.DB, error){
				func() (*lockd.DB, error) { return lockd.New(&test.opts) },
				func() (*lockd.DB, error) { return lockd.Open(path, &test.opts) },
			} {
				db, err := open()
				if db != nil || !errors.Is(err, lockd.ErrInvalid) ||
					!strings.Contains(err.Error(), test.text) {
					t.Errorf("got %v, %v, want %q", db, err, test.text)
				}
			}
			if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("there is a file: %v", err)
			}
		})
	}
}

// Ensure that every fault is named at once, not only the first.
func TestOptions_NamesEveryFault(t *testing.T) {
	_, err := lockd.New(&lockd.Options{Sync: 9, History: -5, OpenTimeout: -time.Second})
	for _, field := range []string{"Sync", "History", "OpenTimeout"} {
		if err == nil || !strings.Contains(err.Error(), "Options."+field) {
			t.Errorf("%s is not in %v", field, err)
		}
	}
}

// Ensure that an empty path is refused like any other bad argument.
func TestOpen_NoPath(t *testing.T) {
	if db, err := lockd.Open("", nil); db != nil || !errors.Is(err, lockd.ErrInvalid) {
		t.Errorf("got %v, %v", db, err)
	}
	for name, err := range map[string]error{
		"verify": lockd.Verify("", nil), "compact": lockd.Compact("", nil),
		"backup":  lockd.BackupFile("", io.Discard, nil),
		"restore": lockd.Restore("", strings.NewReader(""), 0, nil),
	} {
		want := "lockd: " + name + ": invalid argument: path is empty"
		if !errors.Is(err, lockd.ErrInvalid) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// Ensure that nil options are ready, in memory and on a file, and mean the node "local".
func TestOptions_Nil(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockd.db")
	for name, open := range map[string]func() (*lockd.DB, error){
		"New":  func() (*lockd.DB, error) { return lockd.New(nil) },
		"Open": func() (*lockd.DB, error) { return lockd.Open(path, nil) },
	} {
		db, err := open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, ok := db.Snapshot().Catalog().Node("local"); !ok {
			t.Errorf("%s: no node", name)
		}
		if err := db.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
	if info, err := os.Stat(path); err != nil {
		t.Error(err)
	} else if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode: got %v", info.Mode())
	}
}

// Ensure that the file has the mode of the options, less the umask.
func TestOptions_FileMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows has no such modes")
	}
	onFile(t, func(h *harness) {
		h.opts.FileMode = 0o400 | 0o200 | 0o040
		path := filepath.Join(t.TempDir(), "other.db")
		db, err := lockd.Open(path, &h.opts)
		h.must(err)
		defer func() { h.must(db.Close()) }()
		info, err := os.Stat(path)
		h.must(err)
		if mode := info.Mode().Perm(); mode&^0o640 != 0 || mode&0o600 != 0o600 {
			h.t.Errorf("mode: got %v", mode)
		}
	})
}

// Ensure that sessions that name no node are on the node of the options, and that a file that is
// opened under another node keeps the first.
func TestOptions_S4_Node(t *testing.T) {
	each(t, func(h *harness) {
		h.opts.Node = "Web1"
		h.reopen()
		if s := h.session(nil); s.Info().Node != "Web1" {
			h.t.Errorf("node: got %q", s.Info().Node)
		}
		index := h.Snapshot().Index()
		h.opts.Node = "web1" // the same in another case
		if h.path != "" {
			h.reopen()
			if n, _ := h.Snapshot().Catalog().Node("web1"); n.Name != "Web1" {
				h.t.Errorf("node: got %+v", n)
			}
			if _, ok := h.Snapshot().Catalog().Node("local"); !ok {
				h.t.Errorf("the node of the first Open is gone")
			}
			if got := h.Snapshot().Index(); got != index+1 { // the session's end
				h.t.Errorf("index: was %d, is %d", index, got)
			}
		}
	})
}

// Ensure that History is the number of events that are kept, 10,000 by default.
func TestOptions_History(t *testing.T) {
	for history, kept := range map[int]int{0: 10_000, 1: 1, 25: 25, 20_000: 11_000} {
		t.Run(fmt.Sprint(history), func(t *testing.T) {
			inBubble(t, "", func(h *harness) {
				h.opts.History = history
				h.reopen()
				h.writes("k", 11_000)
				newest := h.Snapshot().Index()
				if got := len(h.events(lockd.KeyScope("k"), newest-uint64(kept))); got != kept {
					h.t.Errorf("kept: got %d, want %d", got, kept)
				}
				if kept < 11_000 {
					h.watches(h.t.Context(), lockd.KeyScope("k"), newest-uint64(kept)-1).
						ends(lockd.ErrCompacted)
				}
			})
		})
	}
}

// Ensure that the options are read once: later changes to them have no effect.
func TestOptions_ReadOnce(t *testing.T) {
	opts := lockd.Options{Node: "first"}
	db, err := lockd.New(&opts)
	if err != nil {
		t.Fatal(err)
	}
	opts.Node, opts.History = "second", 1
	s, err := db.NewSession(nil)
	if err != nil || s.Info().Node != "first" {
		t.Errorf("got %+v, %v", s, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// Ensure that a file that is in use is refused with ErrInUse after OpenTimeout, and not before, and
// can be opened when it is free.
func TestOptions_OpenTimeout(t *testing.T) {
	onFile(t, func(h *harness) {
		opts := h.opts
		opts.OpenTimeout = 200 * time.Millisecond
		began := time.Now()
		db, err := lockd.Open(h.path, &opts)
		if db != nil || !errors.Is(err, lockd.ErrInUse) {
			h.t.Fatalf("got %v, %v", db, err)
		}
		if took := time.Since(began); took < 200*time.Millisecond {
			h.t.Errorf("refused after %v", took)
		}
		opts.OpenTimeout, began = lockd.NoWait, time.Now()
		if db, err := lockd.Open(h.path, &opts); db != nil || !errors.Is(err, lockd.ErrInUse) {
			h.t.Fatalf("got %v, %v", db, err)
		}
		if took := time.Since(began); took >= 200*time.Millisecond {
			h.t.Errorf("refused after %v, want at once", took)
		}
		h.put("k", "still mine", 0)
		h.reopen()
	})
}

// Ensure that without a Clock every deadline runs on the real one, which is the bubble's here.
func TestOptions_S26_RealClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, err := lockd.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := db.NewSession(&lockd.SessionOptions{TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-s.Done()
		if took := time.Since(began).Round(time.Millisecond); took != 10*time.Second {
			t.Errorf("ended after %v", took)
		}
		if !errors.Is(s.Err(), lockd.ErrExpired) {
			t.Errorf("got %v", s.Err())
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Ensure that the longest TTL, and the most remote time of a clock, do no harm.
func TestOptions_S13S26_FarDeadlines(t *testing.T) {
	each(t, func(h *harness) {
		h.clock.Set(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC))
		s := h.session(&lockd.SessionOptions{TTL: math.MaxInt64, LockDelay: time.Minute})
		h.lock(s, "k")
		h.advance(24 * time.Hour)
		h.must(s.Renew())
		h.must(h.EndSession(s.ID()))
		if got := h.remaining(h.session(nil), "k"); got != time.Minute {
			h.t.Errorf("delay: got %v", got)
		}
	})
}
