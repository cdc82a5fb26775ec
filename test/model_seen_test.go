package lockd_test

import (
	"fmt"
	"maps"
	"slices"

	"github.com/lockd/lockd"
)

// compareSeen compares what Locks and Stats show with the model.
func (w *twin) compareSeen() error {
	stats := w.db.Stats()
	got := [4]int{stats.Keys, stats.Sessions, stats.Locks, stats.Waiters}
	want := [4]int{len(w.m.keys), len(w.m.live), 0, len(w.m.queue)}
	for _, e := range w.m.keys {
		if !e.Session.IsZero() {
			want[2]++
		}
	}
	if got != want || stats.Index != w.m.published {
		return fmt.Errorf("stats: got %+v, want keys, sessions, locks, waiters %v, index %d",
			stats, want, w.m.published)
	}
	keys := maps.Clone(w.m.delays)
	for key := range w.m.keys {
		keys[key] = w.m.now
	}
	for _, waiter := range w.m.queue {
		for _, key := range waiter.keys {
			keys[key] = w.m.now
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
	}
	return nil
}

// seen is what Locks should show of the key; of those who wait, their sessions and keys.
func (m *model) seen(key string) lockd.LockInfo {
	info := lockd.LockInfo{Key: key}
	if e := m.keys[key]; !e.Session.IsZero() {
		info.Holder, info.Fence = m.session(e.Session).info, e.Fence
		if since, ok := m.granted[e.Fence]; ok {
			info.Since, info.Held = since, m.now.Sub(since)
		}
	}
	if until := m.delays[key]; m.now.Before(until) {
		info.DelayedUntil = until
	}
	for _, w := range m.queue {
		if slices.Contains(w.keys, key) {
			info.Queue = append(info.Queue,
				lockd.WaiterInfo{Session: w.session.info, Keys: w.keys})
		}
	}
	return info
}

func sameLock(got, want lockd.LockInfo) error {
	same := got.Key == want.Key && sameInfo(got.Holder, want.Holder) &&
		got.Fence == want.Fence && got.Since.Equal(want.Since) && got.Held == want.Held &&
		got.DelayedUntil.Equal(want.DelayedUntil) && len(got.Queue) == len(want.Queue)
	for i := 0; same && i < len(want.Queue); i++ {
		same = sameInfo(got.Queue[i].Session, want.Queue[i].Session) &&
			slices.Equal(got.Queue[i].Keys, want.Queue[i].Keys)
	}
	if !same {
		return fmt.Errorf("lock: got %+v\nwant %+v", got, want)
	}
	return nil
}
