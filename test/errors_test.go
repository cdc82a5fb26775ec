package lockd_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that the text of a refusal says what was expected and what was found, so that the reader
// does not have to look it up.
func TestError_SaysWhatWasFound(t *testing.T) {
	each(t, func(h *harness) {
		s, other := h.session(nil), h.session(nil)
		q := h.lock(s, "k").Sequencer()
		h.put("free", "v", 0)
		with := func(change func(q *lockd.Sequencer)) error {
			changed := q
			change(&changed)
			return h.CheckSequencer(changed)
		}
		gone := h.session(nil)
		lost := h.lock(gone, "lost")
		h.must(h.EndSession(gone.ID()))
		ended, cancel := context.WithCancel(h.t.Context())
		cancel()
		all := func(ctx context.Context, keys ...string) error {
			return second(s.LockAll(ctx, keys, nil))
		}
		var watched error
		for _, watched = range h.Watch(h.t.Context(), lockd.SessionScope(s.ID()), 1000) {
		}
		const check = `lockd: check sequencer "k": lock is not held: `
		for _, test := range []struct {
			err  error
			is   error
			want string
		}{
			{with(func(q *lockd.Sequencer) { q.LockIndex = 7 }), lockd.ErrNotHeld,
				check + fmt.Sprintf("fence %d has lock index 1, not 7", q.Fence)},
			{with(func(q *lockd.Sequencer) { q.Session = other.ID() }), lockd.ErrNotHeld,
				check + fmt.Sprintf("fence %d is of session %s, not of session %s", q.Fence,
					s.ID(), other.ID())},
			{with(func(q *lockd.Sequencer) { q.Fence = 1 << 40 }), lockd.ErrNotHeld,
				check + fmt.Sprintf("fence 1099511627776 was not granted, the lock is held with "+
					"fence %d by session %s", q.Fence, s.ID())},
			{with(func(q *lockd.Sequencer) { q.Fence-- }), lockd.ErrNotHeld,
				check + fmt.Sprintf("fence %d has passed, the lock is held with fence %d by "+
					"session %s", q.Fence-1, q.Fence, s.ID())},
			{all(ended, "a", "b"), context.Canceled, `lockd: lock all "a, b": context canceled`},
			{all(h.t.Context(), "a", "", "b"), lockd.ErrInvalid,
				`lockd: lock all "a, , b": invalid argument: key is empty (number 2 of 3)`},
			{lost.Unlock(), lockd.ErrNotHeld, "lockd: unlock: " + lost.Err().Error()},
			{gone.Close(), lockd.ErrNoSession, "lockd: close session: " + gone.Err().Error()},
			{second(gone.TryLock("k", nil)), lockd.ErrNoSession,
				`lockd: try lock "k": ` + gone.Err().Error()},
			{watched, lockd.ErrInvalid, fmt.Sprintf("lockd: watch %q: invalid argument: index "+
				"1000 is ahead of the database, which is at %d", s.ID(), h.Snapshot().Index())},
			{second(lockd.ParseSessionID("web1")), lockd.ErrInvalid,
				`lockd: parse session "web1": invalid argument: it is not a UUID`},
			{second(lockd.ParseSequencer("1:2:shared:web1:k")), lockd.ErrInvalid,
				`lockd: parse sequencer "1:2:shared:web1:k": invalid argument: ` +
					`session "web1" is not a UUID`},
		} {
			if !errors.Is(test.err, test.is) || test.err.Error() != test.want {
				h.t.Errorf("got  %v\nwant %v", test.err, test.want)
			}
			if _, ok := errors.AsType[*lockd.Error](test.err); !ok {
				h.t.Errorf("%v is no *Error", test.err)
			}
		}
		h.must(h.Close())
		if got := h.Err().Error(); got != "lockd: database closed by its owner" {
			h.t.Errorf("got %s", got)
		}
		var last error
		for _, last = range h.Observe(h.t.Context(), "k") {
		}
		if fmt.Sprint(last) != `lockd: observe "k": database closed by its owner` {
			h.t.Errorf("got %v", last)
		}
	})
}

// Ensure that a caller can tell, without knowing the causes, that it still holds a lock, that it
// has ended its hold itself, and that it has lost the lock.
func TestLost(t *testing.T) {
	each(t, func(h *harness) {
		s, lost := h.session(nil), h.session(nil)
		released, taken, deleted := h.lock(s, "released"), h.lock(s, "taken"), h.lock(s, "deleted")
		ended, kept := h.lock(lost, "ended"), h.lock(s, "kept")
		ctx := taken.Context(h.t.Context())
		h.must(released.Unlock())
		h.must(h.ForceUnlock("taken", taken.Sequencer().Fence, "test"))
		h.must(second(h.Delete("deleted")))
		h.must(h.EndSession(lost.ID()))
		for what, test := range map[string]struct {
			err  error
			want bool
		}{
			"held":          {kept.Err(), false},
			"released":      {released.Err(), false},
			"taken":         {taken.Err(), true},
			"its context":   {context.Cause(ctx), true},
			"its unlock":    {taken.Unlock(), true},
			"key deleted":   {deleted.Err(), true},
			"session ended": {ended.Err(), true},
			"the session":   {lost.Err(), true},
			"another error": {h.ForceUnlock("taken", 1, ""), false},
		} {
			if got := lockd.Lost(test.err); got != test.want {
				h.t.Errorf("%s: Lost(%v) is %t", what, test.err, got)
			}
		}
		h.must(s.Close())
		h.must(h.Close())
		for what, err := range map[string]error{
			"session closed": s.Err(), "with its session": kept.Err(), "closed database": h.Err(),
		} {
			if err == nil || lockd.Lost(err) {
				h.t.Errorf("%s: Lost(%v)", what, err)
			}
		}
		h.open()
	})
}

// Ensure that each type of error has a text even as the zero value, which a fake in a user's test
// may return.
func TestErrors_ZeroValuesHaveAText(t *testing.T) {
	for _, err := range []error{
		new(lockd.Error), &lockd.Error{Op: "put", Key: "k"}, new(lockd.EndedError),
		&lockd.EndedError{Key: "k"}, new(lockd.LockedError), new(lockd.DeadlockError),
	} {
		if err.Error() == "" {
			t.Errorf("%T has no text", err)
		}
	}
}

// Ensure that a refusal says in words what is in the way.
func TestLockedError_SaysWhatIsInTheWay(t *testing.T) {
	byA := func(e lockd.LockedError) lockd.LockedError {
		e.Obstacle = cmp.Or(e.Obstacle, lockd.ObstacleHolder)
		e.Holder, e.HolderName, e.Held = lockd.SessionID{1}, "a", 2*time.Second
		e.Since = time.Unix(0, 0)
		return e
	}
	one, two := make([]lockd.Holder, 1), make([]lockd.Holder, 2)
	const a = `"a" (session 01000000-0000-0000-0000-000000000000)`
	const full = "all slots are taken, the limit is 2"
	const longest = ", the longest by " + a + " for 2s"
	const lost = ", one that was lost is delayed for another "
	for _, test := range []struct {
		err  lockd.LockedError
		want string
	}{
		{byA(lockd.LockedError{}), "held by " + a + " for 2s"},
		{byA(lockd.LockedError{Waiters: 3}), "held by " + a + " for 2s, 3 ahead of you"},
		{byA(lockd.LockedError{Own: true}), "held by " + a + ", your own, for 2s"},
		{byA(lockd.LockedError{Holders: one}), "shared by " + a + " for 2s"},
		{byA(lockd.LockedError{Holders: one, Own: true}), "shared by " + a + ", your own, for 2s"},
		{byA(lockd.LockedError{Holders: two}),
			"shared by 2 holders, for longest by " + a + " for 2s"},
		{byA(lockd.LockedError{Holders: two, Own: true}),
			"shared by 2 holders, for longest by " + a + ", one of them your own, for 2s"},
		{lockd.LockedError{Obstacle: lockd.ObstacleHolder, Holder: lockd.SessionID{1}}, "held by " +
			"session 01000000-0000-0000-0000-000000000000 since before the file was opened"},
		{byA(lockd.LockedError{Obstacle: lockd.ObstacleSlots, Limit: 2}), full + longest},
		{byA(lockd.LockedError{Obstacle: lockd.ObstacleSlots, Limit: 2, Remaining: time.Minute}),
			full + longest + lost + "1m0s"},
		{lockd.LockedError{Obstacle: lockd.ObstacleSlots, Limit: 2, Remaining: time.Second},
			full + lost + "1s"},
		{lockd.LockedError{Obstacle: lockd.ObstacleQueue, Waiters: 1},
			"promised to those who wait for it, 1 ahead of you"},
		{lockd.LockedError{Obstacle: lockd.ObstacleDelay, Remaining: 1,
			Until: time.Date(2000, 1, 2, 3, 4, 5, 0, time.UTC)},
			"delayed for another 1ms, until 2000-01-02T03:04:05.000Z, " +
				"because its last holder was lost"},
	} {
		if got := test.err.Error(); got != test.want {
			t.Errorf("got %s\nwant %s", got, test.want)
		}
	}
}
