package lockd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/store"
)

// logged is a handler that keeps the records that it is given, in words.
type logged struct {
	level slog.Leveler
	hold  chan struct{} // if it is not nil, every record waits for one receive from it

	mu    sync.Mutex // protects what follows
	lines []string
}

func (l *logged) Enabled(_ context.Context, level slog.Level) bool {
	return l.level == nil || level >= l.level.Level()
}

func (l *logged) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *logged) WithGroup(string) slog.Handler      { return l }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	if l.hold != nil {
		<-l.hold
	}
	line := fmt.Sprintf("%d %v %s:", r.Time.Unix(), r.Level, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		line += fmt.Sprintf(" %s=%v", a.Key, a.Value)
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

// take returns what was logged since the last time.
func (l *logged) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines = nil
	return lines
}

// log opens the database anew with a logger.
func (h *harness) log(handler *logged) {
	h.t.Helper()
	h.opts.Logger = slog.New(handler)
	h.reopen()
}

// mustLog compares what was logged since the last time, with names in place of the sessions' IDs.
func (h *harness) mustLog(l *logged, sessions map[string]*lockd.Session, want ...string) {
	h.t.Helper()
	h.settle()
	got := l.take()
	for i := range got {
		for name, s := range sessions {
			got[i] = strings.ReplaceAll(got[i], s.ID().String(), "<"+name+">")
		}
	}
	if !slices.Equal(got, want) {
		h.t.Fatalf("log:\ngot  %q\nwant %q", got, want)
	}
}

// Ensure that the log has each transition of a lock, and each beginning and end of a session, with
// the level, the attributes and the time that the doc comment of Options.Logger says.
func TestLogger_TellsWhatHappens(t *testing.T) {
	each(t, func(h *harness) {
		l := &logged{}
		h.log(l)
		h.settle()
		l.take()
		h.advance(time.Second)
		at := h.Stats().Index
		a := h.named("a")
		b := h.session(nil)
		names := map[string]*lockd.Session{"a": a, "b": b}
		lock := h.lock(a, "k")
		h.put("k", "v", 0)
		h.wait(h.t.Context(), b, "k", nil)
		h.advance(time.Second)
		h.must(lock.Unlock())
		h.mustLog(l, names,
			fmt.Sprintf("1 DEBUG session created: index=%d node=local session=<a> name=a", at+1),
			fmt.Sprintf("1 DEBUG session created: index=%d node=local session=<b>", at+2),
			fmt.Sprintf("1 DEBUG lock granted: index=%d key=k fence=%d session=<a> name=a",
				at+3, at+3),
			fmt.Sprintf("2 DEBUG lock released: index=%d key=k fence=%d session=<a> name=a "+
				"cause=lock released", at+5, at+3),
			fmt.Sprintf("2 DEBUG lock granted: index=%d key=k fence=%d session=<b> waited=1s",
				at+5, at+5),
		)

		at = h.Stats().Index
		h.must(h.ForceUnlock("k", at, "it hangs"))
		h.lock(a, "other")
		h.must(h.EndSession(a.ID()))
		h.must(b.Close())
		h.mustLog(l, names,
			fmt.Sprintf("2 WARN lock lost: index=%d key=k fence=%d session=<b> "+
				"cause=unlocked by force: it hangs", at+1, at),
			fmt.Sprintf("2 DEBUG lock granted: index=%d key=other fence=%d session=<a> name=a",
				at+2, at+2),
			fmt.Sprintf("2 WARN lock lost: index=%d key=other fence=%d session=<a> name=a "+
				"cause=session destroyed", at+3, at+2),
			fmt.Sprintf("2 INFO session ended: index=%d node=local session=<a> name=a "+
				"cause=session destroyed", at+3),
			fmt.Sprintf("2 DEBUG session ended: index=%d node=local session=<b> "+
				"cause=closed by its owner", at+4),
		)
	})
}

// Ensure that records about a share say that it is shared.
func TestLogger_TellsTheModeOfAShare(t *testing.T) {
	each(t, func(h *harness) {
		l := &logged{}
		h.log(l)
		a, b := h.named("a"), h.named("b")
		h.settle()
		l.take()
		names := map[string]*lockd.Session{"a": a, "b": b}
		at := h.Stats().Index
		lock := h.share(a, "k")
		h.share(b, "k")
		h.must(lock.Unlock())
		h.must(h.ForceUnlock("k", at+2, "it hangs"))
		h.mustLog(l, names,
			fmt.Sprintf("0 DEBUG lock granted: index=%d key=k fence=%d mode=shared session=<a> "+
				"name=a", at+1, at+1),
			fmt.Sprintf("0 DEBUG lock granted: index=%d key=k fence=%d mode=shared session=<b> "+
				"name=b", at+2, at+2),
			fmt.Sprintf("0 DEBUG lock released: index=%d key=k fence=%d mode=shared session=<a> "+
				"name=a cause=lock released", at+3, at+1),
			fmt.Sprintf("0 WARN lock lost: index=%d key=k fence=%d mode=shared session=<b> "+
				"name=b cause=unlocked by force: it hangs", at+4, at+2),
		)
	})
}

// Ensure that the panic of a leader is logged as soon as it happens: Lead goes on, and returns it
// only at the end.
func TestLogger_TellsOfAPanicOfALeader(t *testing.T) {
	each(t, func(h *harness) {
		l := &logged{level: slog.LevelError}
		h.log(l)
		c := h.stands(&lockd.SessionOptions{Name: "a"})
		term := c.leads()
		h.advance(time.Second)
		term.finish(func() error { panic("boom") })
		h.settle()
		want := fmt.Sprintf("1 ERROR leader panicked: key=k fence=%d session=%s name=a panic=boom "+
			"stack=goroutine ", term.proof.Fence, term.proof.Session)
		got := l.take()
		if len(got) != 1 || !strings.HasPrefix(got[0], want) ||
			!strings.Contains(got[0], "TestLogger_TellsOfAPanicOfALeader") {
			h.t.Errorf("log: got %q, want %q", got, want)
		}
		if c.call.returned() {
			h.t.Errorf("lead has returned %v", c.call.err)
		}
		c.stop()
		if err := c.call.wait(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("lead: got %v", err)
		}
	})
}

// Ensure that records below the handler's level are not logged, and that the level may be changed
// meanwhile.
func TestLogger_AsksForTheLevel(t *testing.T) {
	each(t, func(h *harness) {
		level := new(slog.LevelVar)
		level.Set(slog.LevelWarn)
		l := &logged{level: level}
		h.log(l)
		s := h.session(nil)
		h.mustLog(l, nil)
		level.Set(slog.LevelDebug)
		h.must(s.Close())
		h.settle()
		if got := l.take(); len(got) != 1 || !strings.Contains(got[0], "DEBUG session ended") {
			h.t.Errorf("log: got %q", got)
		}
	})
}

// Ensure that a handler that does not return holds up no call except Close, that records without
// room are dropped, counted and reported, that room is left for records above Debug, and that Close
// logs all records that wait.
func TestLogger_SlowHandlerHoldsUpNobody(t *testing.T) {
	each(t, func(h *harness) {
		l := &logged{hold: make(chan struct{})}
		goOn := sync.OnceFunc(func() { close(l.hold) })
		defer goOn()
		h.log(l)
		s := h.named("a")
		h.settle() // the handler has this one in hand
		const all, room, grants = 4096, 4096 * 3 / 4, 4096*3/4 + 100
		h.must(h.Update(func(tx *lockd.Txn) error { // more than fits, in one commit
			for i := range grants {
				if err := second(tx.Lock(fmt.Sprint(i), s.ID(), nil)); err != nil {
					return err
				}
			}
			return nil
		}))
		if drops := h.Stats().LogDrops; drops != grants-room {
			h.t.Fatalf("drops: got %d, want %d", drops, grants-room)
		}
		h.must(h.EndSession(s.ID())) // a record for each lock, and one for the session
		drops := h.Stats().LogDrops
		if want := uint64(grants - room + grants + 1 - (all - room)); drops != want {
			h.t.Fatalf("drops: got %d, want %d", drops, want)
		}

		closing := start(h.Close)
		h.settle()
		if closing.returned() {
			h.t.Fatal("closed before all was logged")
		}
		goOn()
		h.must(closing.wait())
		lines := l.take()
		told := slices.IndexFunc(lines, func(line string) bool {
			return strings.Contains(line, fmt.Sprintf("WARN log records dropped: count=%d", drops))
		})
		if want := 1 + all + 1; len(lines) != want || told < 0 {
			h.t.Errorf("log: got %d lines, want %d, told of the drops in line %d", len(lines), want,
				told)
		}
		if lost := lines[len(lines)-1]; !strings.Contains(lost, "WARN lock lost") {
			h.t.Errorf("last line: got %s", lost)
		}
	})
}

// Ensure that records of Debug without room are counted also before the handler has had one.
func TestLogger_CountsTheFirstDrops(t *testing.T) {
	inBubble(t, "", func(h *harness) {
		l := &logged{hold: make(chan struct{})}
		defer close(l.hold)
		h.log(l)
		update := h.updating()
		h.advance(time.Second)
		update.end() // the handler has the record of the slow Update in hand
		s := h.named("a")
		const grants, room = 5000, 4096 * 3 / 4
		h.must(h.Update(func(tx *lockd.Txn) error {
			for i := range grants {
				if err := second(tx.Lock(fmt.Sprint(i), s.ID(), nil)); err != nil {
					return err
				}
			}
			return nil
		}))
		if drops := h.Stats().LogDrops; drops != 1+grants-room {
			h.t.Errorf("drops: got %d, want %d", drops, 1+grants-room)
		}
	})
}

// Ensure that failed and slow commits are logged, and that the database fails.
func TestLogger_TellsOfCommits(t *testing.T) {
	onFile(t, func(h *harness) {
		l := &logged{level: slog.LevelInfo}
		h.opts.Logger = slog.New(l)
		c := h.commits()
		h.mustLog(l, nil)
		c.failBy(func() error { h.clock.Add(time.Second); return nil })
		h.put("k", "1", 0)
		c.fail(errDisk)
		mustFail(t, "put", second(h.Put("k", []byte("2"), nil)))
		c.fail(nil)
		h.mustLog(l, nil, "1 WARN commit slow: took=1s writers=1",
			"1 ERROR commit failed: took=0s writers=1 error=commit index 4: "+
				errDisk.Error())

		c.failAfter(errDisk)
		if err := second(h.Put("k", []byte("3"), nil)); err == nil {
			t.Fatal("the put succeeded")
		}
		h.settle()
		got := l.take()
		if len(got) != 2 || !strings.HasPrefix(got[1],
			"1 ERROR database failed: error=database has failed, open it again") {
			t.Errorf("log: got %q", got)
		}
	})
}

// Ensure that Close waits for a step of a checkpoint, and that the log tells of its failure.
func TestLogger_G12_TellsOfAStepDuringClose(t *testing.T) {
	onFile(t, func(h *harness) {
		handler := &logged{level: slog.LevelWarn}
		h.opts.Logger = slog.New(handler)
		begun, goOn := make(chan struct{}, 1), make(chan struct{})
		var failing atomic.Bool
		h.hook(store.Hooks{
			Changed: func() {
				begun <- struct{}{}
				<-goOn
			},
			Synced: func() error {
				if failing.Load() {
					return errors.New("the disk is gone")
				}
				return nil
			},
		})
		for stepping, value := false, byte('a'); !stepping; value ^= 1 {
			put := make(chan error, 1)
			large := bytes.Repeat([]byte{value}, 1<<14)
			go func() { put <- second(h.Put("k", large, nil)) }()
			h.settle()
			select {
			case err := <-put:
				h.must(err)
				stepping = len(begun) > 0
			default: // it takes its rows to the tables itself
				<-begun
				goOn <- struct{}{}
				h.must(<-put)
			}
		}
		closed := make(chan error, 1)
		go func() { closed <- h.Close() }()
		h.settle()
		failing.Store(true)
		close(goOn)
		err := <-closed
		lines := handler.take()
		if err != nil || len(lines) != 1 || !strings.Contains(lines[0], "checkpoint failed") {
			t.Errorf("close: %v, logged: %q", err, lines)
		}
	})
}

// Ensure that the ends that an Open or a Close causes are logged.
func TestLogger_TellsOfOpenAndClose(t *testing.T) {
	onFile(t, func(h *harness) {
		s := h.named("a")
		h.lock(s, "k")
		l := &logged{}
		h.opts.Logger = slog.New(l)
		names := map[string]*lockd.Session{"a": s}
		at := h.Stats().Index
		next := h.crash(nil)
		next.mustLog(l, names,
			fmt.Sprintf("0 WARN lock lost: index=%d key=k fence=%d session=<a> name=a "+
				"cause=process of the session is gone", at+1, at),
			fmt.Sprintf("0 WARN session ended: index=%d node=local session=<a> name=a "+
				"cause=process of the session is gone", at+1))
		names["b"] = next.session(nil)
		next.mustLog(l, names,
			fmt.Sprintf("0 DEBUG session created: index=%d node=local session=<b>", at+2))
		next.must(next.Close())
		next.mustLog(l, names, fmt.Sprintf("0 DEBUG session ended: index=%d node=local "+
			"session=<b> cause=database closed by its owner", at+3))
	})
}

// Ensure that an Open whose commit fails has logged that when it returns, and leaves no goroutine.
func TestLogger_TellsOfAnOpenThatFails(t *testing.T) {
	onFile(t, func(h *harness) {
		l := &logged{level: slog.LevelWarn}
		_, err := lockd.Open(filepath.Join(t.TempDir(), "new.db"), &lockd.Options{
			Logger: slog.New(l), Clock: probe(h.clock, store.Hooks{
				BeforeCommit: func() error { return errDisk },
			}),
		})
		mustFail(t, "open", err)
		lines := l.take()
		if len(lines) != 1 || !strings.Contains(lines[0], "ERROR commit failed") {
			t.Errorf("logged: %q", lines)
		}
	})
}

// logByDefault makes the handler the one of slog.Default, and opens the database anew without a
// logger of its own.
func (h *harness) logByDefault(handler *logged) {
	h.t.Helper()
	before := slog.Default()
	slog.SetDefault(slog.New(handler))
	h.t.Cleanup(func() { slog.SetDefault(before) })
	h.opts.Logger = nil
	h.reopen()
}

// Ensure that a database without a logger of its own logs to the default one: what went wrong is
// seen without an option, such as the panic that Keeper.Lead survives in term after term.
func TestLogger_NilIsTheDefault(t *testing.T) {
	each(t, func(h *harness) {
		l := &logged{level: slog.LevelInfo}
		h.logByDefault(l)
		s := h.named("a")
		lock := h.lock(s, "held")
		h.mustLog(l, nil)
		h.must(h.ForceUnlock("held", lock.Sequencer().Fence, "test"))
		h.settle()
		if got := l.take(); len(got) != 1 || !strings.Contains(got[0], "WARN lock lost: ") {
			h.t.Errorf("a loss: got %q", got)
		}

		c := h.stands(nil)
		count := func(terms map[string]int) error { terms["k"]++; return nil }
		for range 2 {
			c.leads().finish(func() error { return count(nil) })
			h.settle()
			got := l.take()
			if len(got) != 1 || !strings.Contains(got[0], "ERROR leader panicked: ") ||
				!strings.Contains(got[0], "panic=assignment to entry in nil map") {
				h.t.Errorf("a panic: got %q", got)
			}
			h.advance(2 * time.Second) // the rest after a panic
		}
		last := c.leads()
		c.stop()
		last.ends(nil)
		if err := c.call.wait(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("lead: got %v", err)
		}
		if h.Stats().LogDrops != 0 {
			h.t.Errorf("%d records were dropped", h.Stats().LogDrops)
		}
	})
}

// Ensure that the temporary databases in which backups are made and read log nothing: nobody waits
// for their Updates.
func TestLogger_TrialsLogNothing(t *testing.T) {
	inBubble(t, "", func(h *harness) {
		l := &logged{}
		h.logByDefault(l)
		h.opts.Clock = nil // the bubble's, as the trials have
		h.reopen()
		h.settle()
		l.take()
		var b bytes.Buffer
		h.must(lockd.WriteBackup(&b, 0, func(tx *lockd.Txn) error {
			time.Sleep(2 * time.Second)
			return second(tx.Put("k", nil, nil))
		}))
		h.must(lockd.Restore(filepath.Join(t.TempDir(), "lockd.db"), &b, 0, nil))
		h.mustLog(l, nil)
	})
}

// Ensure that the default logger gets records below Info if its level takes them.
func TestLogger_DefaultThatTakesDebug(t *testing.T) {
	inBubble(t, "", func(h *harness) {
		l := &logged{}
		h.logByDefault(l)
		h.settle()
		l.take()
		h.lock(h.session(nil), "k")
		h.settle()
		got := l.take()
		if len(got) != 2 || !strings.Contains(got[0], "DEBUG session created: ") ||
			!strings.Contains(got[1], "DEBUG lock granted: ") {
			h.t.Errorf("got %q", got)
		}
	})
}

// Ensure that a database with a logger of its own, also one that discards, logs to no other.
func TestLogger_OfItsOwn(t *testing.T) {
	inBubble(t, "", func(h *harness) {
		def, own := &logged{}, &logged{}
		h.logByDefault(def)
		for _, logger := range []*slog.Logger{slog.New(own), slog.New(slog.DiscardHandler)} {
			h.opts.Logger = logger
			h.reopen()
			def.take()
			own.take()
			lock := h.lock(h.session(nil), "k")
			h.must(h.ForceUnlock("k", lock.Sequencer().Fence, "test"))
			h.settle()
			want := 0
			if logger.Handler() == slog.Handler(own) {
				want = 3
			}
			if got := own.take(); len(got) != want {
				h.t.Errorf("its own: got %q, want %d records", got, want)
			}
			h.mustLog(def, nil)
		}
	})
}
