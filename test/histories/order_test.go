package histories_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lockd/lockd"
)

// granted is a grant that its caller was told of or, with fence 0, a call that may have waited for
// a grant in vain.
type granted struct {
	key, session string
	fence        uint64
	call, back   int64
	era          int
	shared       bool
	several      bool // it was a call for several keys
	holds        bool // the session may have held a lock meanwhile, by another call
	remote       bool // it was asked for over HTTP
}

// overtook reports whether g was granted no later than first, which should have come first. Sharers
// of a lock may be granted it together (R3).
func (g granted) overtook(first granted) bool {
	return g.fence < first.fence || g.fence == first.fence && !(g.shared && first.shared)
}

// passes reports whether the grant may have come ahead of calls that waited (R13): its session held
// a lock that a call for several keys, this key among them, may have waited for.
func (g granted) passes(ofKey []granted) bool {
	return g.holds && slices.ContainsFunc(ofKey, func(w granted) bool {
		return w.several && w.session != g.session && w.call < g.back && w.back > g.call
	})
}

// checkFences is G8: if a grant was told of before another was asked for, the later grant has no
// smaller fence, and a larger one if both are of one key.
func checkFences(grants []granted) (wrong []string) {
	grants = slices.DeleteFunc(slices.Clone(grants), func(g granted) bool { return g.fence == 0 })
	calls, backs := slices.Clone(grants), slices.Clone(grants)
	slices.SortFunc(calls, func(a, b granted) int { return cmp.Compare(a.call, b.call) })
	slices.SortFunc(backs, func(a, b granted) int { return cmp.Compare(a.back, b.back) })
	highest, of := uint64(0), map[string]uint64{}
	for _, g := range calls {
		for len(backs) > 0 && backs[0].back < g.call {
			highest = max(highest, backs[0].fence)
			of[backs[0].key] = max(of[backs[0].key], backs[0].fence)
			backs = backs[1:]
		}
		if g.fence < highest || g.fence <= of[g.key] {
			wrong = append(wrong, fmt.Sprintf(
				"G8: %+v came after a grant with fence %d, and one of its key with fence %d", g,
				highest, of[g.key]))
		}
	}
	return wrong
}

// checkQueues is G9: calls that were seen to wait are granted the lock in that order, and before
// all calls that asked for it later, unless these pass them (R13). It also returns the number of
// pairs that it has compared.
func checkQueues(grants []granted, looks []look) (pairs int, wrong []string) {
	of := map[string][]granted{}
	for _, g := range grants {
		of[g.key] = append(of[g.key], g)
	}
	for _, l := range looks {
		var line []granted
		for _, session := range l.queue {
			var can []granted
			for _, g := range of[l.key] {
				if g.session == session && g.call < l.until && g.back > l.from {
					can = append(can, g)
				}
			}
			if len(can) == 1 && can[0].fence > 0 { // else another call may have been seen
				line = append(line, can[0])
			}
		}
		for i, g := range line {
			for _, before := range line[:i] {
				if g.passes(of[l.key]) {
					continue
				}
				pairs++
				if g.overtook(before) {
					wrong = append(wrong, fmt.Sprintf("G9: %+v overtook %+v in the queue "+
						"seen between %d and %d", g, before, l.from, l.until))
				}
			}
			for _, later := range of[l.key] {
				if later.call <= l.until || later.era != l.era.number || later.fence == 0 ||
					later.passes(of[l.key]) {
					continue
				}
				pairs++
				if later.overtook(g) {
					wrong = append(wrong, fmt.Sprintf("G9: %+v overtook %+v, which waited", later,
						g))
				}
			}
		}
	}
	return pairs, wrong
}

// checkDead: no session is granted a lock that was asked for after it had ended.
func checkDead(grants []granted, ended map[string]int64) (wrong []string) {
	for _, g := range grants {
		if at, ok := ended[g.session]; ok && at < g.call && g.fence > 0 {
			wrong = append(wrong, fmt.Sprintf("%+v: its session ended at %d", g, at))
		}
	}
	return wrong
}

// checkChain: each event of a key begins with the entry that the event before it ended with, so no
// change is missing between them, and indexes rise.
func checkChain(before map[string]lockd.Entry, events []seen) (wrong []string) {
	now, last := maps.Clone(before), uint64(0)
	of := map[string]uint64{}
	for _, e := range events {
		old := now[e.Key]
		if e.Previous.ModifyIndex != old.ModifyIndex || e.Previous.Fence != old.Fence ||
			e.Previous.Session != old.Session || string(e.Previous.Value) != string(old.Value) {
			wrong = append(wrong, fmt.Sprintf("watch: a gap before index %d: %+v, not %+v",
				e.Index, e.Previous, old))
		}
		if e.Index < last || e.Index <= of[e.Key] || e.Kind == lockd.KeyPut &&
			e.Entry.ModifyIndex != e.Index {
			wrong = append(wrong, fmt.Sprintf("watch: index %d of %q came after %d and %d", e.Index,
				e.Key, last, of[e.Key]))
		}
		last, of[e.Key], now[e.Key] = e.Index, e.Index, e.Entry
	}
	return wrong
}

// checkFinal: the events lead to the entries that the database has at the end.
func checkFinal(before map[string]lockd.Entry, events []seen, final *lockd.Snapshot) []string {
	now := maps.Clone(before)
	for _, e := range events {
		if now[e.Key] = e.Entry; e.Kind == lockd.KeyDeleted {
			delete(now, e.Key)
		}
	}
	var wrong []string
	for key, e := range final.Prefix("") {
		if now[key].ModifyIndex != e.ModifyIndex {
			wrong = append(wrong, fmt.Sprintf("watch: the last that was seen of %q is %+v, not %+v",
				key, now[key], e))
		}
		delete(now, key)
	}
	for key := range now {
		wrong = append(wrong, fmt.Sprintf("watch: %q is gone, and no event told of it", key))
	}
	return wrong
}

// checkReplay: a watch that began later, from an index that had passed, has the same events.
func checkReplay(all, replayed []seen, from uint64) []string {
	all = slices.DeleteFunc(slices.Clone(all), func(e seen) bool { return e.Index <= from })
	if len(all) != len(replayed) {
		return []string{fmt.Sprintf("watch: from index %d on there are %d events, and %d came",
			from, len(all), len(replayed))}
	}
	for i, e := range all {
		if r := replayed[i]; r.Index != e.Index || r.Key != e.Key || r.Kind != e.Kind {
			return []string{fmt.Sprintf("watch: event %d from index %d on is %+v, not %+v", i, from,
				r.Event, e.Event)}
		}
	}
	return nil
}

// checkSeen: every write that was answered with its index has one event.
func checkSeen(before uint64, events []seen, records []*record) (wrong []string) {
	count := map[string]int{}
	at := func(key string, index uint64) string { return fmt.Sprint(key, " ", index) }
	for _, e := range events {
		count[at(e.Key, e.Index)]++
	}
	for _, r := range records {
		if r.kind != put && r.kind != swap || r.output.outcome != done || r.quiet {
			continue
		}
		if r.entry.mod > before && count[at(r.key, r.entry.mod)] != 1 {
			wrong = append(wrong, fmt.Sprintf("watch: the write of %q with index %d was seen %d "+
				"times", r.key, r.entry.mod, count[at(r.key, r.entry.mod)]))
		}
	}
	return wrong
}

// checkEnds is G5: at the index of a session's end all its locks are gone, and none comes after.
func checkEnds(before map[string]lockd.Entry, events, ends []seen) (wrong []string) {
	now := maps.Clone(before)
	ended := map[lockd.SessionID]uint64{}
	for _, e := range ends {
		if e.Kind == lockd.SessionEnded {
			ended[e.Session.ID] = e.Index
		}
	}
	for _, e := range events {
		for key, held := range now {
			if at, ok := ended[held.Session]; ok && at < e.Index {
				wrong = append(wrong, fmt.Sprintf("G5: session %s ended at index %d, and holds %q "+
					"until index %d", held.Session, at, key, e.Index))
				delete(now, key)
			}
		}
		if at, ok := ended[e.Entry.Session]; ok && at <= e.Index {
			wrong = append(wrong, fmt.Sprintf("G5: session %s ended at index %d, and has %q at %d",
				e.Entry.Session, at, e.Key, e.Index))
		}
		now[e.Key] = e.Entry
	}
	return wrong
}
