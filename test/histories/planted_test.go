package histories_test

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// These tests, and those of planted_order_test.go, show that each checker can fail: they feed it a
// history with a violation.

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
	kept := entry{exists: true, session: "s", create: 5, mod: 5, lockIndex: 1, fence: 5}
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
			at(3, input{kind: get}, output{entry: kept}),
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
			at(3, input{kind: get}, output{entry: kept}),
			at(5, lock("u"), fenced(2, 8)),
		}},
		"a grant that was given up and stayed": {false, []porcupine.Operation{
			beside(4, at(1, input{kind: grant, session: "s", keeps: true, call: 1}, lost)),
			beside(4, at(2, input{kind: giveUp, call: 1}, output{})),
			at(5, input{kind: get}, output{entry: kept}),
			at(6, input{kind: get}, output{entry: kept}),
		}},
		"a read with another fence": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: get}, output{entry: entry{
				exists: true, session: "s", create: 5, mod: 5, lockIndex: 1, fence: 4,
			}}),
		}},
		"a read of an untold grant with a fence that fell": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, free("s", 5), output{}),
			beside(9, at(3, input{kind: grant, session: "u", keeps: true, call: 1}, lost)),
			at(4, input{kind: get}, output{entry: entry{
				exists: true, session: "u", create: 5, mod: 8, lockIndex: 2, fence: 5,
			}}),
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
			at(3, input{kind: get}, output{entry: kept}),
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
		"a forced unlock that was refused for nothing": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: force, fence: 5}, no),
		}},
		"an unlock that was refused for nothing": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, free("s", 5), no),
		}},
		"a delete that was refused for nothing": {false, []porcupine.Operation{
			at(1, input{kind: put, value: "x"}, wrote("x", 5, 5)),
			at(2, input{kind: removeIf, index: 5}, no),
		}},
		"a delete that found no key and said it did": {false, []porcupine.Operation{
			at(1, input{kind: remove}, output{entry: entry{exists: true}}),
		}},
		"an acquire again over HTTP with another fence": {false, []porcupine.Operation{
			at(1, input{kind: acquire, session: "s", value: "x"}, over(5)),
			at(2, input{kind: acquire, session: "s", value: "x"}, over(6)),
		}},
		"a lock that was taken over with another fence": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, lock("s"), fenced(1, 6)),
		}},
		"a release over HTTP of no share": {false, []porcupine.Operation{
			at(1, share("s", "x"), over(5)),
			at(2, input{kind: release, session: "u", shared: true, keeps: true}, quiet),
		}},
		"a downgrade by another session": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: downgrade, session: "u", fence: 5}, fenced(1, 6)),
		}},
		"a free lock that was refused over HTTP as held": {false, []porcupine.Operation{
			at(1, input{kind: acquire, session: "u"}, output{outcome: refused, why: held}),
		}},
		"a refusal that names another than the sharers": {false, []porcupine.Operation{
			at(1, join("s"), fenced(1, 5)),
			at(2, input{kind: try, session: "u"}, output{
				outcome: refused, why: held, entry: entry{session: "v", fence: 5},
			}),
		}},
		"a held lock that was refused for its queue": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: try, session: "u"}, output{outcome: refused, why: queued}),
		}},
		"an unlock of a share that was refused for nothing": {false, []porcupine.Operation{
			at(1, join("s"), fenced(1, 5)),
			at(2, leave("s", 5), no),
		}},
		"a release of a share over HTTP that was refused for nothing": {false,
			[]porcupine.Operation{
				at(1, share("s", "x"), over(5)),
				at(2, input{kind: release, session: "s", shared: true, keeps: true}, no),
			}},
		"a downgrade that was refused for nothing": {false, []porcupine.Operation{
			at(1, lock("s"), fenced(1, 5)),
			at(2, input{kind: downgrade, session: "s", fence: 5}, no),
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
