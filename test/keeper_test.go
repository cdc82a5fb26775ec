package lockd_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

func (h *harness) keeper(opts *lockd.SessionOptions) *lockd.Keeper {
	h.t.Helper()
	k, err := h.NewKeeper(opts)
	h.must(err)
	return k
}

// kept returns the keeper's session.
func (h *harness) kept(k *lockd.Keeper) *lockd.Session {
	h.t.Helper()
	s, err := k.Session(h.t.Context())
	h.must(err)
	return s
}

// keeps asks for the keeper's session on a goroutine of its own.
func (h *harness) keeps(ctx context.Context, k *lockd.Keeper) *call {
	c := start(func() error { return second(k.Session(ctx)) })
	h.settle()
	return c
}

// Ensure that all calls that ask at once get one session, and that there was none before.
func TestKeeper_OneSession(t *testing.T) {
	each(t, func(h *harness) {
		var k *lockd.Keeper
		h.nothingMoves("a new keeper", func() {
			k = h.keeper(&lockd.SessionOptions{Name: "mine", TTL: time.Minute})
			if s, ok := k.Current(); ok || s != nil {
				h.t.Errorf("current: got %v, %v", s, ok)
			}
		})
		var sessions [20]*lockd.Session
		var calls []*call
		for i := range sessions {
			calls = append(calls, start(func() (err error) {
				sessions[i], err = k.Session(h.t.Context())
				return err
			}))
		}
		for i, call := range calls {
			h.must(call.wait())
			if sessions[i] != sessions[0] {
				h.t.Fatal("another session")
			}
		}
		info := sessions[0].Info()
		if info.Name != "mine" || info.TTL != time.Minute {
			h.t.Errorf("got %+v", info)
		}
		if s, ok := k.Current(); !ok || s != sessions[0] || h.kept(k) != s {
			h.t.Errorf("current: got %v, %v", s, ok)
		}
		if got := len(h.events(lockd.SessionsScope(), 1)); got != 1 {
			h.t.Errorf("sessions: got %d", got)
		}
	})
}

// Ensure that a session is renewed in time, by itself, and without a write.
func TestKeeper_G6_Renews(t *testing.T) {
	each(t, func(h *harness) {
		k := h.keeper(&lockd.SessionOptions{TTL: 10 * time.Second, Grace: time.Second})
		s := h.kept(k)
		h.nothingMoves("renewals", func() {
			for range 100 {
				h.advance(7 * time.Second)
			}
			h.advance(time.Hour)
		})
		if s.Err() != nil || h.kept(k) != s {
			h.t.Errorf("got %v", s.Err())
		}
	})
}

// Ensure that the caller may change the options after the call, and that the keeper does not.
func TestKeeper_OptionsAreItsOwn(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		opts := &lockd.SessionOptions{
			Name: "mine", Node: "db1", Checks: []string{"disk"}, Meta: map[string]string{"m": "v"},
		}
		k := h.keeper(opts)
		opts.Name, opts.Node, opts.Checks[0] = "x", "x", "x"
		opts.Meta["m"] = strings.Repeat("x", 2*lockd.MaxKeySize)
		s := h.kept(k)
		if info := s.Info(); info.Name != "mine" || info.Node != "db1" ||
			info.Checks[0] != "disk" || info.Meta["m"] != "v" {
			h.t.Errorf("got %+v", info)
		}
	})
}

// Ensure that another session is made when one has ended, however it did.
func TestKeeper_MadeAnew(t *testing.T) {
	each(t, func(h *harness) {
		k := h.keeper(&lockd.SessionOptions{TTL: 10 * time.Second})
		ends := map[string]func(s *lockd.Session) error{
			"destroyed": func(s *lockd.Session) error { return h.EndSession(s.ID()) },
			"closed":    (*lockd.Session).Close,
			"restored": func(*lockd.Session) error {
				return h.Restore(strings.NewReader(string(h.backup())))
			},
		}
		before := h.kept(k)
		for name, end := range ends {
			h.must(end(before))
			if s, ok := k.Current(); ok {
				h.t.Errorf("%s: %v is the current one", name, s.ID())
			}
			s := h.kept(k)
			if s == before || s.ID() == before.ID() || s.Err() != nil {
				h.t.Errorf("%s: got %v after %v", name, s.ID(), before.ID())
			}
			h.advance(time.Minute)
			if s.Err() != nil {
				h.t.Errorf("%s: the next one is not renewed: %v", name, s.Err())
			}
			before = s
		}
		h.must(k.Close())
		if n := h.Deadlines(); n != 0 {
			h.t.Errorf("%d deadlines are left", n)
		}
	})
}

// Ensure that there is no other session while the end of a session is not durable, and that the
// session is still the keeper's if its end is taken back.
func TestKeeper_G3_NoSessionBeforeTheEndIsKnown(t *testing.T) {
	for name, outcome := range map[string]error{"succeeds": nil, "fails": errDisk} {
		t.Run(name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				c := h.commits()
				k := h.keeper(&lockd.SessionOptions{TTL: 10 * time.Second})
				s := h.kept(k)
				ends := c.held(func() error { return h.EndSession(s.ID()) })
				for range 3 { // what is published is that it lives
					if got := h.kept(k); got != s {
						t.Fatalf("got %v", got.ID())
					}
				}
				c.release(outcome)
				if err := ends.wait(); !errors.Is(err, outcome) {
					t.Fatalf("got %v", err)
				}
				next := h.kept(k)
				if outcome == nil && (next == s || s.Err() == nil) ||
					outcome != nil && (next != s || s.Err() != nil) {
					t.Errorf("got %v after %v, %v", next.ID(), s.ID(), s.Err())
				}
				h.advance(time.Minute)
				if next.Err() != nil {
					t.Errorf("it is not renewed: %v", next.Err())
				}
			})
		})
	}
}

// Ensure that a session which ends before it is durable is not handed out, and the next session
// only when that end is known.
func TestKeeper_G3_EndedBeforeItIsDurable(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		h.register()
		k := h.keeper(&lockd.SessionOptions{Node: "db1", Checks: []string{"disk"}})
		var s *lockd.Session
		makes := c.held(func() (err error) {
			s, err = k.Session(h.t.Context())
			return err
		})
		status := func(status catalog.Status) error {
			return h.Update(func(tx *lockd.Txn) error {
				return tx.Catalog().PutCheck(catalog.Check{Node: "db1", ID: "disk", Status: status})
			})
		}
		dies := start(func() error { return status(catalog.Critical) })
		h.settle()
		if _, ok := k.Current(); ok || makes.returned() {
			t.Fatal("it is handed out before it is durable")
		}
		c.release(nil)
		h.must(dies.wait())
		h.settle()
		if makes.returned() { // it may have been handed out between the two commits
			h.must(makes.err)
			if !isClosed(s.Done()) {
				t.Fatal("it has ended, and does not tell")
			}
			makes = start(func() (err error) {
				s, err = k.Session(h.t.Context())
				return err
			})
		}
		h.must(status(catalog.Passing))
		h.must(makes.wait())
		if s.Err() != nil {
			t.Errorf("got %v", s.Err())
		}
	})
}

// Ensure that if such an end is taken back, the session is the keeper's, and the only one.
func TestKeeper_G11_EndBeforeItIsDurableTakenBack(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		h.register()
		k := h.keeper(&lockd.SessionOptions{Node: "db1", Checks: []string{"disk"}})
		makes := c.held(func() error { return second(k.Session(h.t.Context())) })
		dies := start(func() error {
			return h.Update(func(tx *lockd.Txn) error {
				check := catalog.Check{Node: "db1", ID: "disk", Status: catalog.Critical}
				err := tx.Catalog().PutCheck(check)
				check.Status = catalog.Passing
				return errors.Join(err, tx.Catalog().PutCheck(check))
			})
		})
		h.settle()
		asks := start(func() error { return second(k.Session(h.t.Context())) })
		h.settle()
		c.fail(errDisk)
		c.release(nil)
		mustFail(t, "update", dies.wait())
		c.fail(nil)
		h.must(makes.wait())
		h.must(asks.wait())
		h.settle()
		s := h.kept(k)
		for info := range h.Snapshot().Sessions() {
			if info.ID != s.ID() {
				t.Errorf("there is another one: %v", info.ID)
			}
		}
	})
}

// Ensure that Done is closed only when the end of the session is durable, and the session's own
// Done is closed by then; after ErrCommit it lives, and Close can be called again.
func TestKeeper_G10_DoneOnlyWhenItHasEnded(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		k := h.keeper(&lockd.SessionOptions{TTL: 10 * time.Second})
		s := h.kept(k)
		closes := c.held(k.Close)
		if _, err := k.Session(h.t.Context()); !errors.Is(err, lockd.ErrClosed) {
			t.Errorf("a session while it closes: got %v", err)
		}
		if isClosed(k.Done()) || closes.returned() {
			t.Fatal("done before its end is durable")
		}
		c.release(errDisk)
		mustFail(t, "close", closes.wait())
		h.advance(time.Minute)
		if isClosed(k.Done()) || s.Err() != nil {
			t.Fatalf("done %v, session %v", isClosed(k.Done()), s.Err())
		}
		if got, ok := k.Current(); !ok || got != s {
			t.Errorf("current: got %v, %v", got, ok)
		}
		if _, err := k.Session(h.t.Context()); !errors.Is(err, lockd.ErrClosed) {
			t.Errorf("a session after Close was called: got %v", err)
		}
		first := start(func() error {
			<-k.Done()
			return s.Err()
		})
		both := []*call{start(k.Close), start(k.Close)}
		for _, call := range both {
			h.must(call.wait())
		}
		if err := first.wait(); !errors.Is(err, lockd.ErrClosed) {
			t.Errorf("the keeper was done when the session was %v", err)
		}
		writes := c.held(func() error { return second(h.Put("k", nil, nil)) })
		again := start(k.Close)
		h.settle()
		if !again.returned() || again.err != nil {
			t.Errorf("closed again while a commit runs: got %v", again.err)
		}
		c.release(errDisk)
		mustFail(t, "put", writes.wait())
		h.must(again.wait())
	})
}

// Ensure that a session that cannot be committed is tried again by the clock, at growing intervals,
// and leaves nothing when its caller gives up.
func TestKeeper_TriesAgain(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		k := h.keeper(&lockd.SessionOptions{TTL: 10 * time.Second})
		c.fail(errDisk)
		ctx, cancel := context.WithCancel(h.t.Context())
		waits := h.keeps(ctx, k)
		before := c.begun()
		for _, d := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			h.advance(d*time.Second - 1)
			if got := c.begun(); got != before {
				t.Fatalf("before %d s: %d commits", d, got-before)
			}
			h.advance(1)
			if got := c.begun(); got != before+1 || waits.returned() {
				t.Fatalf("after %d s: %d commits", d, got-before)
			}
			before++
		}
		cancel()
		if err := waits.wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		h.settle()
		if h.Deadlines() != 0 || h.Topics() != 0 {
			t.Errorf("left: %d deadlines, %d topics", h.Deadlines(), h.Topics())
		}
		waits = h.keeps(h.t.Context(), k)
		c.fail(nil)
		h.advance(time.Second)
		h.must(waits.wait())
		h.advance(time.Minute)
		if s, ok := k.Current(); !ok || s.Err() != nil {
			t.Errorf("got %v, %v", s, ok)
		}
	})
}

// Ensure that a session that could be made wakes the calls that wait to try again.
func TestKeeper_TriesAgainWhenOthersCan(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		k := h.keeper(nil)
		c.fail(errDisk)
		waits := []*call{h.keeps(h.t.Context(), k), h.keeps(h.t.Context(), k)}
		c.fail(nil)
		h.settle()
		for _, call := range waits {
			if call.returned() {
				t.Fatalf("got %v", call.err)
			}
		}
		h.session(nil)
		for _, call := range waits {
			h.must(call.wait())
		}
	})
}

// Ensure that a call that gives up does not wait for a commit; the session is the keeper's anyway.
func TestKeeper_G11_GivingUp(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		k := h.keeper(&lockd.SessionOptions{TTL: 10 * time.Second})
		ctx, cancel := context.WithCancel(h.t.Context())
		makes := c.held(func() error { return second(k.Session(ctx)) })
		cancel()
		if err := makes.wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if _, ok := k.Current(); ok {
			t.Error("it is shown before it is durable")
		}
		c.release(nil)
		h.settle()
		s, ok := k.Current()
		if !ok || h.kept(k) != s {
			t.Errorf("current: got %v, %v", s, ok)
		}
		if _, err := k.Session(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("context that has ended: got %v", err)
		}
	})
}

// Ensure that a keeper waits for a check that is critical, and for a missing name that was there
// before.
func TestKeeper_S30_Catalog(t *testing.T) {
	each(t, func(h *harness) {
		opts := &lockd.SessionOptions{Node: "db1", Checks: []string{"disk"}}
		k := h.keeper(opts)
		refused := func(want error) {
			h.t.Helper()
			c := h.keeps(h.t.Context(), k)
			if !c.returned() || !errors.Is(c.err, want) {
				h.t.Fatalf("got %v, want %v", c.err, want)
			}
		}
		update := func(fn func(tx *lockd.Txn) error) {
			h.t.Helper()
			h.must(h.Update(fn))
		}
		put := func(status catalog.Status) func(tx *lockd.Txn) error {
			return func(tx *lockd.Txn) error {
				return errors.Join(tx.Catalog().PutNode(catalog.Node{Name: "db1"}),
					tx.Catalog().PutCheck(catalog.Check{Node: "db1", ID: "disk", Status: status}))
			}
		}
		refused(catalog.ErrNoNode)
		update(func(tx *lockd.Txn) error { return tx.Catalog().PutNode(catalog.Node{Name: "db1"}) })
		refused(catalog.ErrNoCheck)
		update(put(catalog.Critical))
		waits := h.keeps(h.t.Context(), k)
		update(put(catalog.Warning))
		h.must(waits.wait())
		for _, end := range []func(tx *lockd.Txn) error{
			put(catalog.Critical),
			func(tx *lockd.Txn) error { return second(tx.Catalog().DeleteCheck("db1", "disk")) },
			func(tx *lockd.Txn) error { return second(tx.Catalog().DeleteNode("db1")) },
		} {
			first := h.keeper(opts) // loses the first session that it had
			before := []*lockd.Session{h.kept(k), h.kept(first)}
			update(end)
			waits := []*call{h.keeps(h.t.Context(), k), h.keeps(h.t.Context(), first)}
			h.advance(time.Hour)
			for i, s := range before {
				if s.Err() == nil || waits[i].returned() {
					h.t.Fatalf("keeper %d: got %v, %v", i, s.Err(), waits[i].err)
				}
			}
			update(put(catalog.Passing))
			h.must(waits[0].wait())
			h.must(waits[1].wait())
			h.must(first.Close())
		}
		update(put(catalog.Critical))
		ctx, cancel := context.WithCancel(h.t.Context())
		waits = h.keeps(ctx, k)
		cancel()
		if err := waits.wait(); !errors.Is(err, context.Canceled) {
			h.t.Errorf("got %v", err)
		}
		waits = h.keeps(h.t.Context(), k)
		h.must(k.Close())
		if err := waits.wait(); !errors.Is(err, lockd.ErrClosed) {
			h.t.Errorf("got %v", err)
		}
		h.settle()
		if h.Topics() != 0 {
			h.t.Errorf("%d topics are left", h.Topics())
		}
	})
}

// Ensure that a keeper has had no session yet if the first was dropped by a commit that failed:
// then a missing node is an error, and the keeper does not wait for it.
func TestKeeper_S30_FirstSessionDropped(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		k := h.keeper(&lockd.SessionOptions{Node: "web"})
		node := c.held(func() error {
			return h.Update(func(tx *lockd.Txn) error {
				return tx.Catalog().PutNode(catalog.Node{Name: "web"})
			})
		})
		kept := h.keeps(h.t.Context(), k)
		c.release(errDisk)
		mustFail(t, "put node", node.wait())
		h.settle()
		h.advance(time.Minute)
		if err := kept.wait(); !errors.Is(err, catalog.ErrNoNode) {
			t.Errorf("got %v, want ErrNoNode", err)
		}
		h.must(k.Close())
	})
}

// Ensure that a keeper that has had a session waits for its missing node, also after a second
// session was dropped by a commit that failed.
func TestKeeper_S30_SecondSessionDropped(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		k := h.keeper(&lockd.SessionOptions{Node: "web"})
		put := func() error {
			return h.Update(func(tx *lockd.Txn) error {
				return tx.Catalog().PutNode(catalog.Node{Name: "web"})
			})
		}
		h.must(put())
		h.kept(k)
		h.must(h.Update(func(tx *lockd.Txn) error {
			return second(tx.Catalog().DeleteNode("web"))
		}))
		node := c.held(put)
		kept := h.keeps(h.t.Context(), k)
		c.release(errDisk)
		mustFail(t, "put node", node.wait())
		h.settle()
		h.advance(time.Minute)
		if kept.returned() {
			t.Fatalf("got %v", kept.err)
		}
		h.must(put())
		h.must(kept.wait())
	})
}

// Ensure that, whatever fails and ends sessions, there are never two, and no session is handed out
// before the end of the session before it is known.
func TestKeeper_NeverTwo(t *testing.T) {
	onFile(t, func(h *harness) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		var mu sync.Mutex // protects what follows
		random := rand.New(rand.NewPCG(seed, 0))
		var made []*lockd.Session
		chance := func(n int) bool {
			mu.Lock()
			defer mu.Unlock()
			return random.IntN(n) == 0
		}
		c := h.commits()
		c.failBy(func() error {
			if chance(4) {
				return errDisk
			}
			return nil
		})
		from := h.Snapshot().Index()
		k := h.keeper(&lockd.SessionOptions{Name: "kept", TTL: time.Minute})
		use := func() {
			for range 100 {
				s, err := k.Session(h.t.Context())
				if err != nil {
					t.Errorf("got %v", err)
					return
				}
				mu.Lock()
				last := len(made) - 1
				if last >= 0 && s.Info().CreateIndex > made[last].Info().CreateIndex &&
					!isClosed(made[last].Done()) {
					t.Error("handed out before the end of the one before was told")
				}
				if last < 0 || s.Info().CreateIndex > made[last].Info().CreateIndex {
					made = append(made, s)
				}
				mu.Unlock()
				if chance(3) {
					_ = h.EndSession(s.ID()) // may fail, or come too late
				}
			}
		}
		users := []*call{}
		for range 4 {
			users = append(users, start(func() error {
				use()
				return nil
			}))
		}
		for !allReturned(users) {
			h.advance(time.Second)
		}
		c.fail(nil)
		h.must(k.Close())
		alive := 0
		for _, e := range h.events(lockd.SessionsScope(), from) {
			switch e.Kind {
			case lockd.SessionCreated:
				alive++
			case lockd.SessionEnded:
				alive--
			}
			if alive < 0 || alive > 1 {
				t.Fatalf("%d sessions at index %d", alive, e.Index)
			}
		}
		if len(made) < 10 {
			t.Errorf("only %d sessions were handed out", len(made))
		}
		if h.Deadlines() != 0 {
			t.Errorf("%d deadlines are left", h.Deadlines())
		}
	})
}

// Ensure that a keeper has had no session yet if every one that it made was dropped by a commit
// that failed, also if there were several: then a missing node is an error.
func TestKeeper_S30_FirstTwoSessionsDropped(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		h.must(h.Update(func(tx *lockd.Txn) error {
			return tx.Catalog().PutNode(catalog.Node{Name: "web"})
		}))
		k := h.keeper(&lockd.SessionOptions{Node: "web"})
		c.fail(errDisk)
		kept := h.keeps(h.t.Context(), k)
		h.advance(time.Second) // the second session is dropped too
		c.fail(nil)
		h.must(h.Update(func(tx *lockd.Txn) error {
			return second(tx.Catalog().DeleteNode("web"))
		}))
		h.advance(time.Minute)
		if !kept.returned() {
			t.Fatal("the call waits for the node")
		}
		if err := kept.wait(); !errors.Is(err, catalog.ErrNoNode) {
			t.Errorf("got %v, want ErrNoNode", err)
		}
		h.must(k.Close())
	})
}
