package lockd_test

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/lockd/lockd"
)

// compareSeen compares what Locks and Stats show with the model.
func (w *twin) compareSeen() error {
	stats := w.db.Stats()
	got := [5]int{stats.Keys, stats.Sessions, stats.Locks, stats.Waiters, stats.Shares}
	want := [5]int{len(w.m.keys), len(w.m.live), 0, len(w.m.queue), 0}
	for _, shares := range w.m.shares {
		want[4] += len(shares)
	}
	for _, e := range w.m.keys {
		if !e.Session.IsZero() {
			want[2]++
		}
	}
	if got != want || stats.Index != w.m.published {
		return fmt.Errorf("stats: got %+v, want keys, sessions, locks, waiters, shares %v, "+
			"index %d", stats, want, w.m.published)
	}
	keys := map[string]bool{}
	for key := range w.m.delays {
		keys[key] = true
	}
	for key := range w.m.keys {
		keys[key] = true
	}
	for _, waiter := range w.m.queue {
		for _, key := range waiter.keys {
			keys[key] = true
		}
	}
	var seen []lockd.LockInfo
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		info := w.m.seen(key)
		if !info.Holder.ID.IsZero() || !info.DelayedUntil.IsZero() || info.Queue != nil {
			seen = append(seen, info)
		}
	}
	locks := slices.Collect(w.db.Locks())
	if len(locks) != len(seen) {
		return fmt.Errorf("locks: got %+v, want %+v", locks, seen)
	}
	for i := range seen {
		if err := sameLock(locks[i], seen[i]); err != nil {
			return err
		}
		if w.m.unserved || w.m.backoff > 0 || w.late.still.Load() != nil {
			continue // what waits for another try, or for a timer that is late
		}
		if err := stranded(locks[i]); err != nil {
			return err
		}
	}
	return w.compareMostAwaited(locks)
}

// compareMostAwaited compares what MostAwaited shows with what Locks does at the same time.
func (w *twin) compareMostAwaited(locks []lockd.LockInfo) error {
	want := slices.DeleteFunc(locks, func(l lockd.LockInfo) bool { return len(l.Queue) == 0 })
	slices.SortStableFunc(want, func(a, b lockd.LockInfo) int { // which are in order of the keys
		return cmp.Or(cmp.Compare(len(b.Queue), len(a.Queue)),
			cmp.Compare(b.Queue[0].Waited, a.Queue[0].Waited))
	})
	for n := range len(want) + 2 {
		got, want := w.db.MostAwaited(n), want[:min(n, len(want))]
		if len(got) != len(want) || n > 0 && len(want) > 0 && !reflect.DeepEqual(got, want) {
			return fmt.Errorf("the %d most awaited: got %+v\nwant %+v", n, got, want)
		}
	}
	return nil
}

// compareDeadlines compares what Sessions and Deadline show with the model, which does not say when
// a session that is kept alive is renewed.
func (w *twin) compareDeadlines() error {
	live := slices.Collect(w.db.Sessions())
	if len(live) != len(w.m.live) {
		return fmt.Errorf("live sessions: got %d, want %d", len(live), len(w.m.live))
	}
	for i, want := range w.m.live {
		deadline, ok := live[i].Deadline()
		switch {
		case live[i].ID() != want.info.ID:
			return fmt.Errorf("live session %d: got %v, want %v", i, live[i].ID(), want.info.ID)
		case ok != (want.info.TTL > 0),
			ok && !want.kept && !deadline.Equal(want.deadline):
			return fmt.Errorf("deadline of %v: got %v, %v, want %v", want.info.ID, deadline, ok,
				want.deadline)
		}
	}
	return nil
}

// seen is what Locks should show of the key; of the waiters, their sessions and keys.
func (m *model) seen(key string) lockd.LockInfo {
	info := lockd.LockInfo{Key: key}
	if holders := m.holders(key); len(holders) > 0 {
		first := holders[0]
		info.Holder, info.Fence, info.Since = first.Session, first.Grant.Fence, first.Since
		if !info.Since.IsZero() {
			info.Held = m.now.Sub(info.Since)
		}
		if first.Grant.Mode == lockd.Shared {
			info.Holders = holders
		}
	}
	if d := m.delays[key]; m.now.Before(d.until) {
		info.DelayedUntil, info.DelayedMode = d.until, d.mode
	}
	for _, w := range m.queue {
		if slices.Contains(w.keys, key) {
			info.Queue = append(info.Queue,
				lockd.WaiterInfo{Session: w.session.info, Mode: modeOf(w.opts), Keys: w.keys})
		}
	}
	return info
}

func sameLock(got, want lockd.LockInfo) error {
	same := got.Key == want.Key && sameInfo(got.Holder, want.Holder) &&
		got.Fence == want.Fence && got.Since.Equal(want.Since) && got.Held == want.Held &&
		got.DelayedUntil.Equal(want.DelayedUntil) && got.DelayedMode == want.DelayedMode &&
		sameHolders(got.Holders, want.Holders) && len(got.Queue) == len(want.Queue)
	for i := 0; same && i < len(want.Queue); i++ {
		same = sameInfo(got.Queue[i].Session, want.Queue[i].Session) &&
			got.Queue[i].Mode == want.Queue[i].Mode &&
			slices.Equal(got.Queue[i].Keys, want.Queue[i].Keys)
	}
	if !same {
		return fmt.Errorf("lock: got %+v\nwant %+v", got, want)
	}
	return nil
}

func sameHolders(got, want []lockd.Holder) bool {
	return slices.EqualFunc(got, want, func(a, b lockd.Holder) bool {
		return sameInfo(a.Session, b.Session) && a.Grant == b.Grant && a.Since.Equal(b.Since)
	})
}
