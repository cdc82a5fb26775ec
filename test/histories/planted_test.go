package histories_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/lockd/lockd"
)

// These tests show that each checker can fail: they feed it a history with a violation.

// at returns an operation that overlaps with no other.
func at(time int64, in input, out output) porcupine.Operation {
	in.key = "k"
	out.until = time*10 + 5
	return porcupine.Operation{Input: in, Output: out, Call: time * 10, Return: out.until}
}

// beside makes an operation last until a later time.
func beside(until int64, o porcupine.Operation) porcupine.Operation {
	o.Return = until*10 + 7
	out := o.Output.(output)
	out.until = o.Return
	o.Output = out
	return o
}

func wrote(value string, create, mod uint64) output {
	return output{entry: entry{exists: true, value: value, create: create, mod: mod}}
}

func fenced(lockIndex, fence uint64) output {
	return output{entry: entry{lockIndex: lockIndex, fence: fence}}
}

func TestPlanted_Model(t *testing.T) {
	const second = int64(1e9)
	lock := func(s string) input { return input{kind: grant, session: s, keeps: true} }
	free := func(s string, fence uint64) input {
		return input{kind: unlock, session: s, fence: fence}
	}
	join := func(s string) input {
		return input{kind: grant, session: s, keeps: true, shared: true}
	}
	leave := func(s string, fence uint64) input {
		return input{kind: unlock, session: s, fence: fence, shared: true}
	}
	removing := func(s string) input {
		return input{kind: grant, session: s, keeps: true, shared: true, removes: true}
	}
	writing := func(s string) input {
		return input{kind: grant, session: s, value: "x", shared: true, removes: true}
	}
	leaveLast := func(s string, fence uint64) input {
		return input{kind: unlock, session: s, fence: fence, shared: true, removes: true}
	}
	share := func(s, value string) input {
		return input{kind: acquire, session: s, value: value, shared: true}
	}
	over := func(fence uint64) output { return output{entry: entry{fence: fence}, quiet: true} }
	forShare := output{outcome: refused, why: shared, quiet: true}
	lost := output{outcome: unknown}
	no := output{outcome: refused}
	quiet := output{quiet: true}
	held := entry{exists: true, session: "s", create: 5, mod: 5, lockIndex: 1, fence: 5}
	tests := map[string]struct {
		right bool
		list  []porcupine.Operation
	}{
		"writes and reads": {true, []porcupine.Operation{
			at(1, input{kind: put, value: "x"}, wrote("x", 5, 5)),
			at(2, input{kind: get}, wrote("x", 5, 5)),
			at(3, input{kind: swap, value: "y", index: 5}, wrote("y", 5, 6)),
			at(4, input{kind: remove}, output{entry: entry{exists: true}}),
			at(5, input{kind: get}, output{}),
		}},
		"a stale read": {false, []porcupine.Operation{
			at(1, input{kind: put, value: "x"}, wrote("x", 5, 5)),
			at(2, input{kind: put, value: "y"}, wrote("y", 5, 6)),
			at(3, input{kind: get}, wrote("x", 5, 5)),
		}},
		"a read beside a write": {true, []porcupine.Operation{
			at(1, input{kind: put, value: "x"}, wrote("x", 5, 5)),
			beside(4, at(2, input{kind: put, value: "y"}, wrote("y", 5, 6))),
			at(3, input{kind: get}, wrote("x", 5, 5)),
		}},
		"a lost write": {false, []porcupine.Operation{
			at(1, input{kind: put, value: "x"}, wrote("x", 5, 5)),
			at(2, input{kind: get}, output{}),
		}},
		"a write of unknown outcome that was done": {true, []porcupine.Operation{
			beside(9, at(1, input{kind: put, value: "x"}, lost)),
			at(2, input{kind: get}, output{}),
			at(3, input{kind: get}, wrote("x", 5, 5)),
		}},
		"a write of unknown outcome that was undone": {false, []porcupine.Operation{
			beside(9, at(1, input{kind: put, value: "x"}, lost)),
			at(2, input{kind: get}, wrote("x", 5, 5)),
			at(3, input{kind: get}, output{}),
		}},
		"an index that was used again": {false, []porcupine.Operation{
			at(1, input{kind: put, value: "x"}, wrote("x", 5, 5)),
			at(2, input{kind: remove}, output{entry: entry{exists: true}}),
			at(3, input{kind: put, value: "y"}, wrote("y", 5, 5)),
		}},
		"an index that moved without a change": {false, []porcupine.Operation{
			at(1, input{kind: put, value: "x"}, wrote("x", 5, 5)),
			at(2, input{kind: put, value: "x"}, wrote("x", 5, 6)),
		}},
		"a swap with an old index": {false, []porcupine.Operation{
			at(1, input{kind: put, value: "x"}, wrote("x", 5, 5)),
			at(2, input{kind: put, value: "y"}, wrote("y", 5, 6)),
			at(3, input{kind: swap, value: "z", index: 5}, wrote("z", 5, 7)),
		}},
		"a swap that was refused for nothing": {false, []porcupine.Operation{
			at(1, input{kind: put, value: "x"}, wrote("x", 5, 5)),
			at(2, input{kind: swap, value: "z", index: 5}, no),
		}},
		"a lock handed on": {true, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			beside(4, at(2, lock("u"), fenced(2, 7))),
			at(3, free("s", 5), output{}),
			at(5, input{kind: get}, output{entry: entry{
				exists: true, session: "u", create: 5, mod: 7, lockIndex: 2, fence: 7,
			}}),
		}},
		"two holders": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, lock("u"), fenced(2, 7)),
		}},
		"a fence that fell": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, free("s", 5), output{}),
			at(3, lock("u"), fenced(2, 4)),
		}},
		"a fence that fell with a delete": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: remove}, quiet),
			at(3, lock("u"), fenced(1, 5)),
		}},
		"a lock index that was used again": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, free("s", 5), output{}),
			at(3, lock("u"), fenced(1, 7)),
		}},
		"an unlock of a lock that was lost": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: endSession, session: "s"}, output{}),
			at(3, free("s", 5), output{}),
		}},
		"a lock that outlived its session": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: endSession, session: "s"}, output{}),
			at(3, input{kind: get}, output{entry: held}),
		}},
		"a grant during the lock-delay": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: endSession, session: "s", delay: 1e9, from: 20}, output{}),
			at(3, lock("u"), fenced(2, 9)),
		}},
		"a grant after the lock-delay": {true, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: endSession, session: "s", delay: 1e9, from: 20}, output{}),
			at(second/10+3, lock("u"), fenced(2, 9)),
		}},
		"a delay where there was no loss": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, free("s", 5), output{}),
			at(3, input{kind: try, session: "u"}, output{outcome: refused, why: delayed}),
		}},
		"a grant that was given up": {true, []porcupine.Operation{
			beside(4, at(1, input{kind: grant, session: "s", keeps: true, call: 1}, lost)),
			beside(4, at(2, input{kind: giveUp, call: 1}, lost)),
			at(3, input{kind: get}, output{entry: held}),
			at(5, lock("u"), fenced(2, 8)),
		}},
		"a grant that was given up and stayed": {false, []porcupine.Operation{
			beside(4, at(1, input{kind: grant, session: "s", keeps: true, call: 1}, lost)),
			beside(4, at(2, input{kind: giveUp, call: 1}, output{})),
			at(5, input{kind: get}, output{entry: held}),
			at(6, input{kind: get}, output{entry: held}),
		}},
		"a value that a release over HTTP did not write": {false, []porcupine.Operation{
			at(1, input{kind: acquire, session: "s", value: "x"}, output{entry: entry{fence: 5}}),
			at(2, input{kind: release, session: "s", value: "y"}, quiet),
			at(3, input{kind: get}, output{entry: entry{
				exists: true, value: "x", create: 5, mod: 6, lockIndex: 1, fence: 5,
			}}),
		}},
		"a lock that is shared": {true, []porcupine.Operation{
			at(1, join("s"), fenced(1, 5)),
			at(2, join("u"), fenced(1, 6)),
			at(3, input{kind: get}, output{entry: entry{
				exists: true, create: 5, mod: 5, lockIndex: 1, fence: 5,
			}}),
			at(4, leave("s", 5), output{}),
			at(5, leave("u", 6), output{}),
			at(6, lock("v"), fenced(2, 9)),
		}},
		"an exclusive grant beside a share": {false, []porcupine.Operation{
			at(1, join("s"), fenced(1, 5)),
			at(2, join("u"), fenced(1, 6)),
			at(3, leave("s", 5), output{}),
			at(4, lock("v"), fenced(2, 8)),
		}},
		"a share beside an exclusive grant": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, join("u"), fenced(1, 6)),
		}},
		"a share over HTTP": {true, []porcupine.Operation{
			at(1, share("s", "x"), over(5)),
			at(2, share("s", "y"), over(5)),
			at(3, input{kind: acquire, session: "v"}, forShare),
			at(4, input{kind: release, session: "v"}, output{outcome: refused, quiet: true}),
			at(5, input{kind: release, session: "s", shared: true, keeps: true}, quiet),
			at(6, input{kind: acquire, session: "v", value: "y"}, over(9)),
			at(7, input{kind: get}, output{entry: entry{
				exists: true, value: "y", session: "v", create: 5, mod: 9, lockIndex: 2, fence: 9,
			}}),
		}},
		"an acquire over HTTP beside a share": {false, []porcupine.Operation{
			at(1, join("s"), fenced(1, 5)),
			at(2, input{kind: acquire, session: "v"}, over(6)),
		}},
		"an acquire over HTTP that was refused for a share that is not there": {false,
			[]porcupine.Operation{
				at(1, lock("s"), fenced(1, 5)),
				at(2, input{kind: acquire, session: "v"}, forShare),
			}},
		"a session over HTTP with two shares": {false, []porcupine.Operation{
			at(1, share("s", "x"), over(5)),
			at(2, share("s", "x"), over(6)),
		}},
		"a release over HTTP that left a share": {false, []porcupine.Operation{
			at(1, share("s", "x"), over(5)),
			at(2, input{kind: release, session: "s", shared: true, keeps: true}, quiet),
			at(3, input{kind: acquire, session: "v"}, forShare),
		}},
		"a share over HTTP that was refused for no reason": {false, []porcupine.Operation{
			at(1, join("s"), fenced(1, 5)),
			at(2, share("u", "x"), output{outcome: refused, quiet: true, why: queued}),
			at(3, share("u", "x"), forShare),
		}},
		"a key that went with its last sharer": {true, []porcupine.Operation{
			at(1, removing("s"), fenced(1, 5)),
			at(2, removing("u"), fenced(1, 7)),
			at(3, leave("s", 5), output{}),
			at(4, leaveLast("u", 7), output{}),
			at(5, input{kind: get}, output{}),
		}},
		"a key that went although the one who made it did so before a restart": {false,
			[]porcupine.Operation{
				at(1, removing("s"), fenced(1, 5)),
				at(2, removing("u"), fenced(1, 7)),
				at(3, leave("s", 5), output{}),
				at(4, input{
					kind: unlock, session: "u", fence: 7, shared: true, removes: true, opened: 6,
				}, output{}),
				at(5, input{kind: get}, output{}),
			}},
		"a key that stayed because a sharer wrote to it as it was created": {true,
			[]porcupine.Operation{
				at(1, removing("s"), fenced(1, 5)),
				at(2, writing("u"), fenced(1, 5)),
				at(3, leave("s", 5), output{}),
				at(4, leaveLast("u", 5), output{}),
				at(5, input{kind: get}, output{entry: entry{
					exists: true, value: "x", create: 5, mod: 5, lockIndex: 1, fence: 5,
				}}),
			}},
		"a key that went although a sharer wrote to it as it was created": {false,
			[]porcupine.Operation{
				at(1, removing("s"), fenced(1, 5)),
				at(2, writing("u"), fenced(1, 5)),
				at(3, leave("s", 5), output{}),
				at(4, leaveLast("u", 5), output{}),
				at(5, input{kind: get}, output{}),
			}},
		"a share that raised the lock index": {false, []porcupine.Operation{
			at(1, join("s"), fenced(1, 5)),
			at(2, join("u"), fenced(2, 6)),
		}},
		"a share with a fence that fell": {false, []porcupine.Operation{
			at(1, join("s"), fenced(1, 5)),
			at(2, join("u"), fenced(1, 7)),
			at(3, join("v"), fenced(1, 6)),
		}},
		"a share that wrote to the key": {false, []porcupine.Operation{
			at(1, join("s"), fenced(1, 5)),
			at(2, join("u"), fenced(1, 6)),
			at(3, input{kind: get}, output{entry: entry{
				exists: true, create: 5, mod: 6, lockIndex: 1, fence: 5,
			}}),
		}},
		"a share that outlived its session": {false, []porcupine.Operation{
			at(1, join("s"), fenced(1, 5)),
			at(2, input{kind: endSession, session: "s"}, output{}),
			at(3, leave("s", 5), output{}),
		}},
		"a share during the lock-delay of a share": {true, []porcupine.Operation{
			at(1, join("s"), fenced(1, 5)),
			at(2, input{kind: endSession, session: "s", delay: 1e9, from: 20}, output{}),
			at(3, join("u"), fenced(2, 9)),
		}},
		"an exclusive grant during the lock-delay of a share": {false, []porcupine.Operation{
			at(1, join("s"), fenced(1, 5)),
			at(2, input{kind: endSession, session: "s", delay: 1e9, from: 20}, output{}),
			at(3, lock("u"), fenced(2, 9)),
		}},
		"a share during the lock-delay of an exclusive grant": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: endSession, session: "s", delay: 1e9, from: 20}, output{}),
			at(3, join("u"), fenced(2, 9)),
		}},
		"a downgrade": {true, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: downgrade, session: "s", fence: 5}, fenced(1, 6)),
			at(3, join("u"), fenced(1, 7)),
			at(4, leave("s", 6), output{}),
		}},
		"a downgrade that let an exclusive grant in": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: downgrade, session: "s", fence: 5}, fenced(1, 6)),
			at(3, lock("u"), fenced(2, 7)),
		}},
		"a forced unlock": {true, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: force, fence: 4}, no),
			at(3, input{kind: force, fence: 5}, output{}),
			at(4, free("s", 5), no),
		}},
		"a forced unlock of another grant": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: force, fence: 4}, output{}),
		}},
		"a forced unlock that left the lock": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: force, fence: 5}, output{}),
			at(3, input{kind: get}, output{entry: held}),
		}},
		"a forced unlock that left a share": {false, []porcupine.Operation{
			at(1, join("s"), fenced(1, 5)),
			at(2, join("u"), fenced(1, 6)),
			at(3, input{kind: force, fence: 5}, output{}),
			at(4, leave("s", 5), output{}),
		}},
		"a delete with an old index": {false, []porcupine.Operation{
			at(1, input{kind: put, value: "x"}, wrote("x", 5, 5)),
			at(2, input{kind: removeIf, index: 4}, output{entry: entry{exists: true}}),
		}},
		"a delete that did not find the key": {false, []porcupine.Operation{
			at(1, input{kind: put, value: "x"}, wrote("x", 5, 5)),
			at(2, input{kind: remove}, output{}),
		}},
		"a stale read over HTTP": {false, []porcupine.Operation{
			at(1, input{kind: put, value: "x"}, wrote("x", 5, 5)),
			at(2, input{kind: put, value: "y"}, wrote("y", 5, 6)),
			at(3, input{kind: read}, wrote("x", 5, 5)),
		}},
		"a key that stayed after its only holder": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: unlock, session: "s", fence: 5, removes: true}, output{}),
			at(3, input{kind: get}, output{entry: entry{
				exists: true, create: 5, mod: 6, lockIndex: 1, fence: 5,
			}}),
		}},
		"a refusal of the holder over HTTP": {false, []porcupine.Operation{
			at(1, input{kind: acquire, session: "s", value: "x"}, output{entry: entry{fence: 5}}),
			at(2, input{kind: acquire, session: "s", value: "x"}, no),
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			wrong := judgeKey(test.list)
			if test.right != (len(wrong) == 0) {
				t.Errorf("right: %v, got %q", test.right, wrong)
			}
		})
	}
}

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

func TestPlanted_G6_Expiry(t *testing.T) {
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
