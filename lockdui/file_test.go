package lockdui_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdui"
)

// Ensure that the page of the file has the rates since the last look at it.
func TestFile(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		h.Advance(10 * time.Second)
		before := h.Stats().Commits.Count
		for i := range 20 {
			_, err := h.Put("k", []byte{byte(i)}, nil)
			h.must(err)
		}
		if got := h.Stats().Commits.Count - before; got != 20 {
			t.Fatalf("%d commits", got)
		}
		h.shows("/file", "commits a second 2.0 over the last 10 s", "calls in a commit 1.0",
			"failed 0", "keys 1", "Ends since it was opened", "sessions not renewed in time 0")
		s, err := h.NewSession(&lockd.SessionOptions{TTL: time.Second})
		h.must(err)
		h.Advance(time.Minute)
		<-s.Done()
		h.shows("/file", "over the last 1 min 10 s", "sessions not renewed in time 1")
		h.FailNextCommit(errors.New("disk full"))
		if _, err := h.Put("k", nil, nil); err == nil {
			t.Fatal("no error")
		}
		h.Advance(3 * time.Second)
		h.shows("/file", "failed 1", "at most 2 a second")
	})
}

// Ensure that the page of the file has its size, as it is now, and how long its commits take.
func TestFile_OnDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockd.db")
	db, err := lockd.Open(path, &lockd.Options{Sync: lockd.SyncNever})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	defer db.Close()
	handler, err := lockdui.Handler(db, nil)
	must(err)
	for range 2 {
		_, err := db.Put("k", make([]byte, 20<<20), nil)
		must(err)
		info, err := os.Stat(path)
		must(err)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, request(http.MethodGet, "/file", nil))
		inOrder(t, "/file", words(w.Body.String()), "size",
			fmt.Sprintf("%.1f MB", float64(info.Size())/1e6), "bytes commits a second")
		took := regexp.MustCompile(`time of a commit [1-9][\d.]* (µs|ms|s) on average ` +
			`the last one [1-9][\d.]* (µs|ms|s) the longest [1-9][\d.]* (µs|ms|s) commits \d`)
		if page := words(w.Body.String()); !took.MatchString(page) {
			t.Errorf("no %s in %s", took, page)
		}
	}
}

// Ensure that the page says that a database in memory has no file, and shows no size.
func TestFile_Memory(t *testing.T) {
	db, err := lockd.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	handler, err := lockdui.Handler(db, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, request(http.MethodGet, "/file", nil))
	page := words(w.Body.String())
	inOrder(t, "/file", page, "The database is in memory: it has no file.", "commits a second")
	if strings.Contains(page, " size ") {
		t.Error(page)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	w = httptest.NewRecorder()
	handler.ServeHTTP(w, request(http.MethodGet, "/file", nil))
	inOrder(t, "/file, closed", words(w.Body.String()), "database closed by its owner",
		"The database is in memory: it has no file.")
}

// Ensure that the rate of commits is that of two minutes at least, once the page was looked at for
// so long, and that older readings are dropped.
func TestFile_RateOfTwoMinutes(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		for _, look := range []struct {
			after time.Duration
			span  string
		}{
			{100 * time.Second, "1 min 40 s"}, // readings at 0 and 100 s
			{30 * time.Second, "2 min 10 s"},  // at 0, 100 and 130 s: the first one is needed
			{100 * time.Second, "2 min 10 s"}, // at 100, 130 and 230 s
			{10 * time.Minute, "10 min 00 s"}, // at 230 and 830 s
		} {
			h.Advance(look.after)
			h.shows("/file", "commits a second", "over the last "+look.span)
		}
	})
}
