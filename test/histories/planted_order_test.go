package histories_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd"
)

func wantWrong(t *testing.T, wrong []string, texts ...string) {
	t.Helper()
	if len(wrong) != len(texts) {
		t.Fatalf("got %q, want %d", wrong, len(texts))
	}
	for i, text := range texts {
		if !strings.Contains(wrong[i], text) {
			t.Errorf("got %q, want %q", wrong[i], text)
		}
	}
}

func TestPlanted_G8_Fences(t *testing.T) {
	first := granted{key: "a", fence: 9, call: 1, back: 2}
	wantWrong(t, checkFences([]granted{first, {key: "a", fence: 10, call: 3, back: 4}}))
	wantWrong(t, checkFences([]granted{first, {key: "b", fence: 9, call: 3, back: 4}}))
	wantWrong(t, checkFences([]granted{first, {key: "a", fence: 8, call: 1, back: 4}}))
	wantWrong(t, checkFences([]granted{first, {key: "a", fence: 9, call: 3, back: 4}}), "G8")
	wantWrong(t, checkFences([]granted{first, {key: "b", fence: 8, call: 3, back: 4}}), "G8")
}

func TestPlanted_G9_Queues(t *testing.T) {
	e := &era{}
	looks := []look{{era: e, key: "a", from: 10, until: 12, queue: []string{"s", "u"}}}
	s := granted{key: "a", session: "s", fence: 20, call: 1, back: 30}
	u := granted{key: "a", session: "u", fence: 21, call: 2, back: 31}
	late := granted{key: "a", session: "v", fence: 22, call: 13, back: 40}
	check := func(grants ...granted) []string {
		pairs, wrong := checkQueues(grants, looks)
		if pairs == 0 {
			t.Error("nothing was compared")
		}
		return wrong
	}
	wantWrong(t, check(s, u, late))
	u.fence, late.fence = s.fence, s.fence
	wantWrong(t, check(s, u, late), "which waited", "in the queue", "which waited")
	s.shared, u.shared, late.shared = true, true, true
	wantWrong(t, check(s, u, late)) // R3
	s.shared, u.shared, late.shared = false, false, false
	u.fence = 21
	s.fence = 25
	late.fence = 26
	wantWrong(t, check(s, u, late), "in the queue")
	s.fence, late.fence = 20, 19
	wantWrong(t, check(s, u, late), "which waited", "which waited")
	late.holds = true
	wantWrong(t, check(s, u, late), "which waited", "which waited")
	s.several = true
	wantWrong(t, check(s, u, late)) // R13
	late.holds = false
	wantWrong(t, check(s, u, late), "which waited", "which waited")
}

func TestPlanted_G10_Told(t *testing.T) {
	w := newWorld("", 1)
	e := &era{w: w}
	lost, own := make(chan struct{}), make(chan struct{})
	grant := func(fence uint64) lockd.Sequencer { return lockd.Sequencer{Key: "a", Fence: fence} }
	w.told(e, grant(5), lost)
	w.told(e, grant(6), own)
	wantWrong(t, w.found, "G10")
	w.found = nil
	close(lost)
	w.told(e, grant(6), make(chan struct{}))
	wantWrong(t, w.found, "two handles")
	w.found = nil
	w.told(e, grant(9), nil) // over HTTP
	wantWrong(t, w.found, "G10", "G10")
	w.found = nil
	share := func(fence uint64) lockd.Sequencer {
		return lockd.Sequencer{Key: "b", Fence: fence, Mode: lockd.Shared}
	}
	w.told(e, share(5), make(chan struct{}))
	w.told(e, share(6), make(chan struct{}))
	wantWrong(t, w.found)
	w.told(e, lockd.Sequencer{Key: "b", Fence: 7}, make(chan struct{}))
	wantWrong(t, w.found, "G10", "G10")
}

func TestPlanted_DeadSession(t *testing.T) {
	ended := map[string]int64{"s": 10}
	wantWrong(t, checkDead([]granted{{session: "s", fence: 1, call: 9}}, ended))
	wantWrong(t, checkDead([]granted{{session: "s", fence: 1, call: 11}}, ended), "ended at 10")
}

// change is an event of a key.
func change(index uint64, before, after lockd.Entry) seen {
	after.Key, after.ModifyIndex = "a", index
	return seen{Event: lockd.Event{
		Index: index, Kind: lockd.KeyPut, Key: "a", Entry: after, Previous: before,
	}}
}

func TestPlanted_Watch(t *testing.T) {
	none := map[string]lockd.Entry{}
	first := change(3, lockd.Entry{}, lockd.Entry{Value: []byte("x")})
	second := change(4, first.Entry, lockd.Entry{Value: []byte("y")})
	third := change(6, second.Entry, lockd.Entry{Value: []byte("z")})
	all := []seen{first, second, third}
	wantWrong(t, checkChain(none, all))
	wantWrong(t, checkChain(none, []seen{first, third}), "a gap")
	wantWrong(t, checkChain(none, []seen{first, second, second}), "a gap", "came after")
	wantWrong(t, checkReplay(all, all[1:], 3))
	wantWrong(t, checkReplay(all, all[2:], 3), "2 events, and 1 came")
	wantWrong(t, checkReplay(all[:2], []seen{first, third}, 0), "event 1")

	write := func(index uint64) []*record {
		return []*record{{input: input{kind: put, key: "a"}, output: wrote("x", 3, index)}}
	}
	wantWrong(t, checkSeen(0, all, write(4)))
	wantWrong(t, checkSeen(0, all, write(5)), "seen 0 times")
}

func TestPlanted_WatchEndsTooEarly(t *testing.T) {
	db, err := lockd.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	e, err := db.Put("a", []byte("x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	none := map[string]lockd.Entry{}
	wantWrong(t, checkFinal(none, []seen{{Event: lockd.Event{Key: "a", Entry: e}}}, db.Snapshot()))
	wantWrong(t, checkFinal(none, nil, db.Snapshot()), "the last that was seen")
	gone := map[string]lockd.Entry{"a": e, "b": {Key: "b"}}
	wantWrong(t, checkFinal(gone, nil, db.Snapshot()), "no event told of it")
}

func TestPlanted_G5_Ends(t *testing.T) {
	id := lockd.SessionID{1}
	held := change(3, lockd.Entry{}, lockd.Entry{Session: id})
	freed := change(7, held.Entry, lockd.Entry{})
	ends := func(index uint64) []seen {
		return []seen{{Event: lockd.Event{
			Index: index, Kind: lockd.SessionEnded, Session: lockd.SessionInfo{ID: id},
		}}}
	}
	none := map[string]lockd.Entry{}
	wantWrong(t, checkEnds(none, []seen{held, freed}, ends(7)))
	wantWrong(t, checkEnds(none, []seen{held, freed}, ends(6)), "holds")
	wantWrong(t, checkEnds(none, []seen{held}, ends(2)), "and has")
}

func TestPlanted_G6_EndsOfSessions(t *testing.T) {
	e := &era{alive: map[string]bool{}, ends: []seen{{at: 100, Event: lockd.Event{
		Kind: lockd.SessionEnded, Cause: fmt.Errorf("in a test: %w", lockd.ErrExpired),
	}}}}
	w := newWorld("", 1)
	w.eras = []*era{e}
	s := &session{ttl: 50, made: 10, renewals: []int64{20}}
	e.ends[0].Session.ID = lockd.SessionID{1}
	s.id = e.ends[0].Session.ID.String()
	w.sessions = []*session{s}
	_, wrong := w.ends()
	wantWrong(t, wrong)
	s.renewals = []int64{20, 60}
	_, wrong = w.ends()
	wantWrong(t, wrong, "G6")
	s.ttl = 0
	_, wrong = w.ends()
	wantWrong(t, wrong, "it has no TTL")
	e.ends[0].Cause = lockd.ErrDestroyed
	_, wrong = w.ends()
	wantWrong(t, wrong, "nothing ended it")
	e.ends[0].Cause = lockd.ErrConflict
	_, wrong = w.ends()
	wantWrong(t, wrong, "its cause is")
	e.ends = nil
	w.eras = []*era{e, {number: 1}}
	_, wrong = w.ends()
	wantWrong(t, wrong, "no event told of its end")
}

// Ensure that a history passes as it was played, and that each checker is asked: it fails once
// something that was answered or seen is another.
func TestPlanted_History(t *testing.T) {
	w := newWorld(t.TempDir(), 2)
	if err := w.play(400); err != nil {
		t.Fatal(err)
	}
	if wrong := w.judge(); len(wrong) > 0 {
		t.Fatal(wrong)
	}
	find := func(fits func(r *record) bool) *record {
		i := slices.IndexFunc(w.records, func(r *record) bool {
			return r.output.outcome == done && fits(r)
		})
		if i < 0 {
			t.Fatal("the history has no such record")
		}
		return w.records[i]
	}
	ends, _ := w.ends()
	end := slices.MinFunc(ends, func(a, b *record) int { return cmp.Compare(a.back, b.back) })
	read := find(func(r *record) bool { return r.kind == get && r.entry.exists })
	value := read.entry.value
	grant := find(func(r *record) bool {
		return r.kind == try && r.entry.fence > r.era.floor && r.call > end.back
	})
	session := grant.session
	e := slices.MaxFunc(w.eras, func(a, b *era) int {
		return cmp.Compare(len(a.events), len(b.events))
	})
	seen := e.events
	for _, test := range []struct {
		spoil, mend func()
		want        string
	}{
		{func() { read.entry.value += "?" }, func() { read.entry.value = value }, "in no order"},
		{func() { grant.entry.fence += 1 << 60 }, func() { grant.entry.fence -= 1 << 60 }, "G8"},
		{func() { grant.session = end.session }, func() { grant.session = session }, "its session"},
		{func() { e.events = seen[len(seen)/2:] }, func() { e.events = seen }, "a gap"},
		{func() { e.events = seen[:len(seen)/2] }, func() { e.events = seen }, "the last"},
		{func() { e.events = nil }, func() { e.events = seen }, "was seen 0 times"},
	} {
		test.spoil()
		if wrong := w.judge(); !slices.ContainsFunc(wrong, func(text string) bool {
			return strings.Contains(text, test.want)
		}) {
			t.Errorf("want %q, got %q", test.want, wrong)
		}
		test.mend()
	}
}
