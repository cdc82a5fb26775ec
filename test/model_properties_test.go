package lockd_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockd/lockd"
)

// What holds whatever the model says: properties of what a database tells, in the same runs.

// referee follows the events of a database, over every Open of its file. The zero value has seen
// nothing.
type referee struct {
	locks      map[string]*refereed
	downgrades [][2]lockd.Sequencer // from which grant to which: not looked at yet
}

// refereed is one lock, as the events tell of it.
type refereed struct {
	alone   lockd.Sequencer
	shares  []lockd.Sequencer
	fence   uint64   // the highest
	writers []uint64 // the fences of all exclusive grants
}

// clone returns a copy of the referee.
func (r *referee) clone() referee {
	c := referee{locks: make(map[string]*refereed), downgrades: slices.Clone(r.downgrades)}
	for key, l := range r.locks {
		c.locks[key] = &refereed{
			alone: l.alone, shares: slices.Clone(l.shares), fence: l.fence,
			writers: slices.Clone(l.writers),
		}
	}
	return c
}

// see looks at events in the order of their indexes: all of an index, or none.
func (r *referee) see(events []lockd.Event) error {
	for len(events) > 0 {
		n := slices.IndexFunc(events, func(e lockd.Event) bool {
			return e.Index != events[0].Index
		})
		if n < 0 {
			n = len(events)
		}
		if err := r.seeIndex(events[:n]); err != nil {
			return fmt.Errorf("at index %d: %w", events[0].Index, err)
		}
		events = events[n:]
	}
	for _, pair := range r.downgrades {
		from, to := pair[0], pair[1]
		for _, fence := range r.lock(from.Key).writers {
			if fence > from.Fence && fence <= to.Fence {
				return fmt.Errorf("between %v and its downgrade %v: a writer with fence %d",
					from, to, fence)
			}
		}
	}
	r.downgrades = nil
	return nil
}

func (r *referee) lock(key string) *refereed {
	l := r.locks[key]
	if l == nil {
		if r.locks == nil {
			r.locks = map[string]*refereed{}
		}
		l = new(refereed)
		r.locks[key] = l
	}
	return l
}

// seeIndex looks at all events of one index: the ends first, as they make room for the grants.
func (r *referee) seeIndex(events []lockd.Event) error {
	for _, e := range events {
		switch e.Kind {
		case lockd.KeyPut, lockd.KeyDeleted:
			if l := r.lock(e.Key); e.Entry.Sequencer() != l.alone {
				l.alone = lockd.Sequencer{}
			}
		case lockd.ShareEnded:
			l := r.lock(e.Key)
			at := slices.Index(l.shares, e.Share)
			if at < 0 {
				return fmt.Errorf("%v ends, and did not hold the lock", e.Share)
			}
			l.shares = slices.Delete(l.shares, at, at+1)
		}
	}
	for _, e := range events {
		l := r.lock(e.Key)
		switch q := e.Entry.Sequencer(); {
		case e.Kind == lockd.ShareGranted:
			l.shares = append(l.shares, e.Share)
			q = e.Share
			fallthrough
		case e.Kind == lockd.KeyPut && !q.Session.IsZero() && q != l.alone:
			if q.Fence != e.Index || q.Fence < l.fence || q.Fence == l.fence && !l.joins(q) {
				return fmt.Errorf("%v after fence %d", q, l.fence)
			}
			if l.fence = q.Fence; q.Mode == lockd.Exclusive {
				l.alone, l.writers = q, append(l.writers, q.Fence)
			}
		}
	}
	for _, e := range events {
		if l := r.lock(e.Key); !l.modes().single() {
			return fmt.Errorf("%q is held by %v and shared by %v", e.Key, l.alone, l.shares)
		}
	}
	return nil
}

// joins reports whether another session is granted a share with the same fence.
func (l *refereed) joins(q lockd.Sequencer) bool {
	return q.Mode == lockd.Shared && slices.ContainsFunc(l.shares, func(o lockd.Sequencer) bool {
		return o.Fence == q.Fence && o.Session != q.Session
	})
}

func (l *refereed) modes() (m lockModes) {
	if !l.alone.Session.IsZero() {
		m.holders = append(m.holders, l.alone.Mode)
	}
	for _, q := range l.shares {
		m.holders = append(m.holders, q.Mode)
	}
	return m
}

// overtakes fails if a shared grant that was not there before has come ahead of an earlier call
// that waits for the lock exclusively; unless a call in front of that one waits for other locks
// too, which some calls pass.
func overtakes(l *modelLock, earlier []*modelWaiter) error {
	if l.grant.Mode != lockd.Shared || l.took {
		return nil
	}
	for _, w := range earlier {
		if w.slot || !slices.Contains(w.keys, l.grant.Key) {
			continue
		}
		if len(w.keys) > 1 {
			return nil
		}
		if !w.told && modeOf(w.opts) == lockd.Exclusive {
			return fmt.Errorf("%v came ahead of a writer of session %s", l.grant,
				w.session.info.Name)
		}
	}
	return nil
}

// stranded fails if a call waits for a lock that it could have (R3): only the first of a queue that
// waits for that lock alone shows it, and not where calls may wait for slots of a semaphore.
func stranded(info lockd.LockInfo) error {
	if len(info.Queue) == 0 || len(info.Queue[0].Keys) > 1 ||
		strings.HasSuffix(info.Key, "/.lock") {
		return nil
	}
	l := lockModes{queue: []lockd.LockMode{info.Queue[0].Mode}}
	for _, holder := range info.Holders {
		l.holders = append(l.holders, holder.Grant.Mode)
	}
	if info.Holders == nil && !info.Holder.ID.IsZero() {
		l.holders = append(l.holders, lockd.Exclusive)
	}
	if !info.DelayedUntil.IsZero() {
		l.delayed = append(l.delayed, info.DelayedMode)
	}
	if !l.single() || l.front() > 0 {
		return fmt.Errorf("a call waits for a lock that it could have: %+v", info)
	}
	return nil
}
