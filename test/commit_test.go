package lockd_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/google/uuid"

	"github.com/lockd/lockd"
)

// stage is the state that the calls around a held commit use: s holds "held", and "k" is there.
type stage struct {
	*harness
	s, other *lockd.Session
	held     *lockd.Lock
	entry    lockd.Entry
	made     lockd.SessionID // of the next session
}

func newStage(h *harness) *stage {
	st := &stage{harness: h, s: h.session(nil), other: h.session(nil)}
	st.held = h.lock(st.s, "held")
	_, err := h.Put("k", []byte("old"), nil)
	h.must(err)
	st.entry = h.entry("k")
	return st
}

// put and the others below are what a case does, as functions of the stage.
func (st *stage) put() error {
	_, err := st.Put("k", []byte("new"), nil)
	return err
}

func (st *stage) swap() error {
	_, err := st.CompareAndSwap("k", st.entry.ModifyIndex, []byte("new"), nil)
	return err
}

func (st *stage) remove() error {
	_, err := st.Delete("k")
	return err
}

func (st *stage) tryLock() error {
	_, err := st.s.TryLock("free", nil)
	return err
}

func (st *stage) tryLockToo() error {
	_, err := st.other.TryLock("free", nil)
	return err
}

func (st *stage) unlock() error  { return st.held.Unlock() }
func (st *stage) close() error   { return st.s.Close() }
func (st *stage) destroy() error { return st.EndSession(st.s.ID()) }
func (st *stage) renew() error   { return st.s.Renew() }

func (st *stage) force() error {
	return st.ForceUnlock("held", st.held.Sequencer().Fence, "test")
}

// make makes a session whose ID is known in advance.
func (st *stage) make() error {
	_, err := st.NewSession(nil)
	return err
}

func (st *stage) find() error {
	_, err := st.Session(st.made)
	return err
}

func (st *stage) findEnding() error {
	_, err := st.Session(st.s.ID())
	return err
}

func (st *stage) keepAlive() error { return st.s.KeepAlive(st.t.Context()) }

func (st *stage) lockEnding() error {
	_, err := st.s.Lock(st.t.Context(), "k", nil)
	return err
}

func (st *stage) read() error {
	return st.Update(func(tx *lockd.Txn) error {
		_, _ = tx.Get("k")
		return nil
	})
}

var errOwn = errors.New("the function's own")

func (st *stage) refuse() error { return st.Update(func(*lockd.Txn) error { return errOwn }) }

func (st *stage) prove() error {
	return st.Update(func(tx *lockd.Txn) error { return tx.CheckSequencer(st.held.Sequencer()) })
}

var errLocked = errors.New("a *LockedError")

// undecided are answers that are decided on a state that is not durable yet.
var undecided = []struct {
	name          string
	write, answer func(*stage) error
	want          error
}{
	{"identical put", (*stage).put, (*stage).put, nil},
	{"failing compare-and-swap", (*stage).put, (*stage).swap, lockd.ErrConflict},
	{"deletion of what is gone", (*stage).remove, (*stage).remove, nil},
	{"lock that is being granted", (*stage).tryLock, (*stage).tryLockToo, errLocked},
	{"second lock of the same session", (*stage).tryLock, (*stage).tryLock, errLocked},
	{"second unlock", (*stage).unlock, (*stage).unlock, nil},
	{"sequencer that has passed", (*stage).unlock, (*stage).prove, lockd.ErrNotHeld},
	{"second unlock by force", (*stage).force, (*stage).force, lockd.ErrNotHeld},
	{"renewal of a closed session", (*stage).close, (*stage).renew, lockd.ErrClosed},
	{"second close", (*stage).close, (*stage).close, nil},
	{"renewal of a destroyed session", (*stage).destroy, (*stage).renew, lockd.ErrDestroyed},
	{"second destruction", (*stage).destroy, (*stage).destroy, lockd.ErrNoSession},
	{"handle on a session that ends", (*stage).destroy, (*stage).findEnding, lockd.ErrNoSession},
	{"handle on a session that begins", (*stage).make, (*stage).find, nil},
	{"keeping alive what ends", (*stage).destroy, (*stage).keepAlive, lockd.ErrDestroyed},
	{"lock for a session that ends", (*stage).destroy, (*stage).lockEnding, lockd.ErrNoSession},
	{"function that only reads", (*stage).put, (*stage).read, nil},
	{"function that refuses", (*stage).put, (*stage).refuse, errOwn},
}

// Ensure that no call is answered, and no change seen, before the state that it was decided on is
// durable; and that all calls are answered, and all changes seen, when it is.
func TestG3_AnswersWaitForTheCommit(t *testing.T) {
	for _, tc := range undecided {
		t.Run(tc.name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				c, st := h.commits(), newStage(h)
				seen, calls := st.hold(c, tc.write, tc.answer)
				c.release(nil)
				h.settle()
				if !calls[0].returned() || !calls[1].returned() {
					t.Fatal("a call did not return")
				}
				h.must(calls[0].err)
				err := calls[1].err
				if tc.want == errLocked {
					_, locked := errors.AsType[*lockd.LockedError](err)
					if !locked {
						t.Fatalf("got %v, want a *LockedError", err)
					}
				} else if !errors.Is(err, tc.want) {
					t.Fatalf("got %v, want %v", err, tc.want)
				}
				saw := seen()
				for _, want := range []string{"index", "event"} {
					if !slices.Contains(saw, want) {
						t.Fatalf("saw %q only, nothing of %q", saw, want)
					}
				}
			})
		})
	}
}

// Ensure that after a commit that failed no change has been seen, and that every call that was
// decided on it fails with ErrCommit and the cause.
func TestG3G11_FailedCommitIsSeenByNobody(t *testing.T) {
	for _, tc := range undecided {
		t.Run(tc.name, func(t *testing.T) {
			onFile(t, func(h *harness) {
				c, st := h.commits(), newStage(h)
				seen, calls := st.hold(c, tc.write, tc.answer)
				c.release(errDisk)
				h.settle()
				for _, call := range calls {
					if !call.returned() {
						t.Fatal("a call did not return")
					}
					mustFail(t, "call", call.err)
				}
				if saw := seen(); len(saw) > 0 {
					t.Fatalf("saw %q of a commit that failed", saw)
				}
				h.must(st.s.Renew())
				h.must(st.read())
				h.must(h.CheckSequencer(st.held.Sequencer()))
			})
		})
	}
}

// hold starts the write and, while its commit is held, the answer, and checks that no change is
// seen and no call returns. The function that it returns tells what has been seen since.
func (st *stage) hold(
	c *commits, write, answer func(*stage) error,
) (seen func() []string, calls []*call) {
	st.t.Helper()
	o := st.observe()
	var seed uuid.UUID
	seed[0], seed[6], seed[8] = 1, 0x40, 0x80 // the bits of a random UUID
	st.made = lockd.SessionID(seed)
	uuid.SetRand(&once{seed[:]})
	defer uuid.SetRand(nil)

	calls = append(calls, c.held(func() error { return write(st) }))
	calls = append(calls, start(func() error { return answer(st) }))
	st.settle()
	handles := map[string]<-chan struct{}{
		"s": st.s.Done(), "other": st.other.Done(), "held": st.held.Done(),
	}
	seen = func() []string { return o.seen(handles) }
	for i, call := range calls {
		if call.returned() {
			st.t.Fatalf("call %d returned %v before the commit", i, call.err)
		}
	}
	if saw := seen(); len(saw) > 0 {
		st.t.Fatalf("saw %q before the commit", saw)
	}
	return seen, calls
}

// once returns its bytes, again and again.
type once struct{ bytes []byte }

func (o *once) Read(into []byte) (int, error) { return copy(into, o.bytes), nil }

// Ensure that all writers that arrive while one commit is under way share the next one.
func TestG3_OneCommitForACrowd(t *testing.T) {
	const writers = 50
	onFile(t, func(h *harness) {
		c := h.commits()
		before := c.begun()
		first := c.held(func() error { _, err := h.Put("first", nil, nil); return err })
		calls := h.crowd(writers)
		c.release(nil)
		h.must(first.wait())
		for _, call := range calls {
			h.must(call.wait())
		}
		if got := c.begun() - before; got != 2 {
			t.Fatalf("commits: got %d, want 2", got)
		}
		if got := h.Snapshot().Len(); got != writers+1 {
			t.Fatalf("keys: got %d, want %d", got, writers+1)
		}
	})
}

// crowd starts that many writers, and returns when all have joined a batch.
func (h *harness) crowd(writers int) []*call {
	entered := make(chan struct{}, writers)
	var calls []*call
	for i := range writers {
		calls = append(calls, start(func() error {
			return h.Update(func(tx *lockd.Txn) error {
				entered <- struct{}{}
				_, err := tx.Put("crowd/"+strconv.Itoa(i), []byte("v"), nil)
				return err
			})
		}))
	}
	for range calls {
		<-entered
	}
	h.Waiters("") // takes the database's lock, in which the last of them joins
	return calls
}
