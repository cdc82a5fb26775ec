package lockdui_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that the page of the file has rates of what has happened since the last look at it.
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
