package engine

import (
	"fmt"

	"github.com/lockd/lockd/internal/schema"
)

// Sequencer names one grant of a lock: see lockd.Sequencer.
type Sequencer struct {
	Key       string
	Session   schema.ID
	LockIndex uint64
	Fence     uint64
	Mode      Mode
}

// SequencerOf returns the sequencer of the grant by which row is locked.
func SequencerOf(row *schema.Key) Sequencer {
	return Sequencer{Key: row.Key, Session: row.Session, LockIndex: row.LockIndex, Fence: row.Fence}
}

// SequencerOfShare returns the sequencer of a share.
func SequencerOfShare(row *schema.Share) Sequencer {
	return Sequencer{
		Key: row.Key(), Session: row.Session(), LockIndex: row.LockIndex, Fence: row.Fence(),
		Mode: Shared,
	}
}

// lasts returns ErrNotHeld unless the grant lasts, as of the newest state.
func (e *Engine) lasts(q Sequencer) error {
	return q.proves(e.rows.Keys.Newest, e.rows.Shares.Newest)
}

// Proves returns ErrNotHeld unless the grant that q names lasts in the published state. Unlike
// Txn.Proves, it accepts a grant whose session or MaxHold is due. It may be called without the
// caller's lock.
func (e *Engine) Proves(q Sequencer) error {
	return q.proves(e.rows.Keys.Get, e.rows.Shares.Get)
}

func (q Sequencer) proves(
	key func(string) *schema.Key, share func(string) *schema.Share,
) error {
	if q.Session.IsZero() {
		return fmt.Errorf("%w: the sequencer proves nothing", ErrNotHeld)
	}
	if q.Mode == Shared {
		row := share(schema.ShareKey(q.Key, q.Fence, q.Session))
		if row == nil || row.LockIndex != q.LockIndex {
			return fmt.Errorf("%w: session %s does not share it with fence %d", ErrNotHeld,
				q.Session, q.Fence)
		}
		return nil
	}
	return q.provesAlone(key(q.Key))
}

// provesAlone is proves for the lock of row, which is not shared. The row may be nil.
func (q Sequencer) provesAlone(row *schema.Key) error {
	switch {
	case row == nil:
		return fmt.Errorf("%w: key %.100q does not exist", ErrNotHeld, q.Key)
	case SequencerOf(row) == q:
		return nil
	case row.Session.IsZero():
		return fmt.Errorf("%w: no session holds it alone, fence %d has passed", ErrNotHeld, q.Fence)
	case q.Fence != row.Fence:
		return fmt.Errorf("%w by session %s", otherFence(q.Fence, row.Fence), row.Session)
	case q.Session != row.Session:
		return fmt.Errorf("%w: fence %d is of session %s, not of session %s", ErrNotHeld, q.Fence,
			row.Session, q.Session)
	}
	if q.LockIndex == row.LockIndex {
		return fmt.Errorf("%w: mode %d is neither exclusive nor shared", ErrNotHeld, q.Mode)
	}
	return fmt.Errorf("%w: fence %d has lock index %d, not %d", ErrNotHeld, q.Fence, row.LockIndex,
		q.LockIndex)
}

// otherFence says of a fence that it is not the one that the lock is held with.
func otherFence(fence, held uint64) error {
	why := "has passed"
	if fence > held {
		why = "was not granted"
	}
	return fmt.Errorf("%w: fence %d %s, the lock is held with fence %d", ErrNotHeld, fence, why,
		held)
}

// Sequencer returns the sequencer of the hold's grant.
func (h *Hold) Sequencer() Sequencer {
	return Sequencer{
		Key: h.Key, Session: h.Session.Row.ID, LockIndex: h.LockIndex, Fence: h.Fence,
		Mode: h.Mode,
	}
}
