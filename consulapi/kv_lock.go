package consulapi

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/lockd/lockd"
)

// refusalHeader is a header of lockd's own. It says why a lock is refused: a false does not tell a
// held lock from a delayed one (X25).
const refusalHeader = "X-Lockd-Refusal"

// modeParameter is a parameter of lockd's own. It names the mode of an acquire or a release (R10).
const modeParameter = "lockd-mode"

// fenceHeader returns the header that tells the fence of a lock. It is lockd's own: Consul's JSON
// of a key has no member for the fence (X1).
func fenceHeader(fence uint64) http.Header {
	return http.Header{"X-Lockd-Fence": {strconv.FormatUint(fence, 10)}}
}

// locking is what an acquire or a release asks for.
type locking struct {
	key, session string
	value        []byte
	flags        uint64
	mode         lockd.LockMode
	bare         bool // of a share: the key keeps its value and flags
}

// newLocking returns what the request asks for. session is the one that it names.
func (r *request) newLocking(session string, value []byte, flags uint64) (locking, error) {
	l := locking{key: r.rest, session: session, value: value, flags: flags}
	switch mode := r.query.Get(modeParameter); {
	case mode == lockd.Shared.String():
		l.mode, l.bare = lockd.Shared, len(value) == 0 && !r.has("flags")
	case r.has(modeParameter) && mode != lockd.Exclusive.String():
		return l, badRequest("%s is %q, neither %q nor %q", modeParameter, mode, lockd.Exclusive,
			lockd.Shared)
	}
	return l, nil
}

func (h *handler) kvAcquire(r *request, value []byte, flags uint64) (answer, error) {
	l, err := r.newLocking(r.query.Get("acquire"), value, flags)
	if err != nil {
		return answer{}, err
	}
	var fence uint64
	err = h.db.Update(func(tx *lockd.Txn) error {
		e, err := l.acquire(tx)
		if err == nil {
			fence = l.fence(tx, e)
		}
		return err
	})
	if locked, is := errors.AsType[*lockd.LockedError](err); is {
		refused := ok(false) // K17, K18
		refused.header = http.Header{refusalHeader: {locked.Error()}}
		return refused, nil
	}
	a, err := applied(err)
	a.header = fenceHeader(fence)
	return a, err
}

func (h *handler) kvRelease(r *request, value []byte, flags uint64) (answer, error) {
	l, err := r.newLocking(r.query.Get("release"), value, flags)
	if err != nil {
		return answer{}, err
	}
	err = h.db.Update(func(tx *lockd.Txn) error {
		_, err := l.release(tx)
		return err
	})
	if errors.Is(err, lockd.ErrNotHeld) {
		return ok(false), nil // K22, K23, K25
	}
	return applied(err)
}

// applied returns the answer to a write that succeeded or failed. The text of a failure gets a
// prefix (H9).
func applied(err error) (answer, error) {
	if f, is := errors.AsType[*failure](err); is {
		return answer{}, &failure{code: f.code, err: f.err, text: "raft apply failed: " + f.text}
	}
	return done(err, nil)
}

// acquire takes the key's lock as Consul does, value and flags included (K13 to K20, K35).
func (l *locking) acquire(tx *lockd.Txn) (lockd.Entry, error) {
	opts := &lockd.LockOptions{Mode: l.mode}
	if !l.bare {
		if opts.Value, opts.Flags = l.value, l.flags; l.value == nil {
			opts.Value = []byte{} // an empty value is written too
		}
	}
	e, err := tx.Lock(l.key, sessionID(l.session), opts)
	switch {
	case errors.Is(err, lockd.ErrNoSession):
		return e, reword(err, "invalid session %q", l.session)
	case errors.Is(err, lockd.ErrInvalid) && l.session == "":
		return e, l.missingSession(err)
	}
	return e, err
}

// fence returns the fence of the grant that the session got from acquire, which returned e.
func (l *locking) fence(tx *lockd.Txn, e lockd.Entry) uint64 {
	if l.mode == lockd.Exclusive {
		return e.Fence
	}
	q := lockd.Sequencer{
		Key: l.key, Session: sessionID(l.session), LockIndex: e.LockIndex, Fence: tx.Index(),
		Mode: lockd.Shared,
	}
	if tx.CheckSequencer(q) == nil { // as a rule: there is no need to look at the other holders
		return q.Fence
	}
	for holder := range tx.Holders(l.key) {
		if holder.Session.ID == q.Session {
			return holder.Grant.Fence
		}
	}
	return 0 // cannot happen
}

// release releases the key's lock and, unlike Txn.Unlock, replaces value and flags (K21 to K25).
// A lock that the session holds in the other mode stays.
func (l *locking) release(tx *lockd.Txn) (lockd.Entry, error) {
	if l.session == "" {
		_, err := tx.Unlock(l.key, lockd.SessionID{})
		return lockd.Entry{}, l.missingSession(err)
	}
	id := sessionID(l.session)
	e, exists := tx.Get(l.key)
	if alone := e.Session == id; exists && alone != (l.mode == lockd.Exclusive) {
		return e, lockd.ErrNotHeld
	}
	if e, err := tx.Unlock(l.key, id); err != nil || l.bare {
		return e, err
	}
	return tx.Put(l.key, l.value, &lockd.PutOptions{Flags: l.flags})
}

// missingSession returns Consul's error for a request that names no session (K19, K24); or err, if
// that is about the key, which is checked first (K35).
func (l *locking) missingSession(err error) error {
	if len(l.key) > lockd.MaxKeySize {
		return err
	}
	return &failure{
		code: http.StatusInternalServerError, err: err, text: "missing session",
	}
}
