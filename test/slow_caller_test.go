//go:build lockddebug

package lockd_test

import (
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// nextLine is the line after the one that calls it, as a record has it.
func nextLine() string {
	_, file, line, _ := runtime.Caller(1)
	return fmt.Sprintf("caller=%s:%d", file, line+1)
}

// Ensure that in a build with the tag lockddebug a record of a slow hold or wait has the line that
// took the lock, or that waits for it.
func TestCaller_R12_OfWhatIsSlow(t *testing.T) {
	each(t, func(h *harness) {
		log := &logged{level: slog.LevelWarn}
		h.opts.Slow = 5 * time.Second
		h.log(log)
		s, other := h.session(nil), h.session(nil)
		var want []string
		took := func(line string, err error) {
			h.must(err)
			want = append(want, line)
		}

		line := nextLine()
		_, err := s.TryLock("try", nil)
		took(line, err)
		line = nextLine()
		_, err = s.Lock(h.t.Context(), "lock", nil)
		took(line, err)
		line = nextLine()
		all, err := s.LockAll(h.t.Context(), []string{"all", "of them"}, nil)
		took(line, err)
		took(line, nil)
		line = nextLine()
		_, err = s.TryAcquire("sem", 1)
		took(line, err)
		waiting := h.lockCall(func() ([]*lockd.Lock, error) {
			line = nextLine()
			l, err := other.Lock(h.t.Context(), "all", nil)
			return []*lockd.Lock{l}, err
		})
		took(line, nil)
		h.must(all[1].Downgrade()) // whose line is the same

		h.advance(5 * time.Second)
		var got []string
		for _, record := range log.take() {
			_, caller, _ := strings.Cut(record, " caller=")
			got = append(got, "caller="+caller)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			h.t.Errorf("got  %q\nwant %q", got, want)
		}

		h.must(all[0].Unlock())
		waiting.held()
		h.advance(5 * time.Second)
		if records := log.take(); len(records) != 1 || !strings.HasSuffix(records[0], line) {
			h.t.Errorf("got %q, want %q", records, line)
		}
	})
}

// Ensure that a lock that a transaction took is logged without a line, for none is known.
func TestCaller_R12_OfATransaction(t *testing.T) {
	each(t, func(h *harness) {
		log := &logged{level: slog.LevelWarn}
		h.opts.Slow = 5 * time.Second
		h.log(log)
		s := h.session(nil)
		h.must(h.txn(func(tx *lockd.Txn) error { return second(tx.Lock("k", s.ID(), nil)) }))
		h.advance(5 * time.Second)
		if records := log.take(); len(records) != 1 || strings.Contains(records[0], "caller=") {
			h.t.Errorf("got %q", records)
		}
	})
}
