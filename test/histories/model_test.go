package histories_test

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// The model is one key with its value, its lock, its lock-delay, its fence and its indexes. A
// history is judged key by key: an operation on several keys is one operation on each.
//
// The model has no queue: order_test.go checks which call is served next.

// kind is what an operation does to a key.
type kind int

const (
	get        kind = iota // reads the entry
	read                   // reads the entry over HTTP, where there is no fence
	put                    // sets the value
	swap                   // sets it if the index is right
	remove                 // deletes the key
	removeIf               // deletes it if the index is right
	grant                  // acquires the lock, and waits for it if need be
	try                    // acquires the lock if that is free
	acquire                // is try over HTTP: a repeat by the holder writes the value
	unlock                 // releases a grant
	downgrade              // makes an exclusive grant a share
	release                // is unlock over HTTP: any grant of the session, and it writes the value
	force                  // takes a grant away
	endSession             // the session ends
	giveUp                 // releases what was granted to a call that has given up
)

// The outcomes.
type outcome int

const (
	done    outcome = iota // it was done
	refused                // a rule refused it
	unknown                // whether it was done is not known
)

// input is what a call asks for.
type input struct {
	kind    kind
	key     string
	value   string
	keeps   bool   // the value stays as it is; for giveUp, the crash may have come first
	index   uint64 // for swap and removeIf
	session string
	fence   uint64 // the grant that unlock and force name
	shared  bool   // the mode, for grant, try, acquire, unlock and release
	removes bool   // the key goes with the lock: RemoveAfter, or DeleteKeys
	opened  uint64 // for unlock and giveUp: requests to remove up to this index are forgotten (R9)
	delay   time.Duration
	from    int64 // the earliest begin of a delay
	call    int   // for giveUp and an unknown grant: the call that may have been granted the lock
}

// output is the answer to a call. Zero means that the answer does not say.
type output struct {
	outcome outcome
	entry   entry
	until   int64 // when the answer had come
	why     obstacle
	quiet   bool // the answer has no entry
}

// obstacle is why a lock was refused.
type obstacle int

const (
	unnamed obstacle = iota
	held
	shared // over HTTP, which does not name the holders
	delayed
	queued
)

// entry is a key as an answer shows it. Zero means none, or that the answer does not say.
type entry struct {
	exists                        bool
	value, session                string
	create, mod, lockIndex, fence uint64
}

// state is a key as the model has it. Index 0 stands for an index that no answer has told yet.
type state struct {
	exists                        bool
	value, holder                 string
	create, mod, lockIndex, fence uint64

	above   uint64 // a lower bound of mod, if no answer has told mod
	highest uint64 // the highest of all fences of the key
	free    int64  // no grant before: the end of the lock-delay
	delayed bool   // a lock-delay has begun since the last grant
	by      int    // the call whose grant was told to no caller
	calls   string // the calls that have yet to give up

	shares      shares
	joined      uint64 // the highest fence of a share
	gone        bool   // the key goes with the last share, if that share asked for it
	sharedFree  int64  // free, and delayed, after the loss of a share
	sharedDelay bool
}

// wrote is the state after a write at the index, or at an unknown index if it is 0.
func (s state) wrote(index uint64) state {
	if s.mod != 0 {
		s.above = s.mod
	}
	s.mod = index
	return s
}

// fits reports whether mod can be the index of the last write.
func (s state) fits(mod uint64) bool {
	if s.mod != 0 {
		return s.mod == mod
	}
	return mod > s.above
}

// saw returns the state after an answer has shown the entry, and whether the state allows it.
func (s state) saw(e entry, fence bool) (state, bool) {
	if e.exists != s.exists {
		return s, false
	}
	if !e.exists {
		return s, true
	}
	if e.value != s.value || e.session != s.holder || e.lockIndex != s.lockIndex ||
		!s.fits(e.mod) || s.create != 0 && s.create != e.create || e.create > e.mod {
		return s, false
	}
	s.mod, s.create = e.mod, e.create
	switch {
	case !fence:
	case s.fence != 0 || s.lockIndex == 0:
		if s.fence != e.fence {
			return s, false
		}
	case e.fence <= s.highest || e.fence > e.mod:
		return s, false // a grant that no caller was told of
	default:
		s.fence, s.highest = e.fence, e.fence
	}
	return s, true
}

// set is the state after a write of the value.
func (s state) set(value string) state {
	if s.exists && s.value == value {
		return s // K3
	}
	if !s.exists {
		s = s.made(0)
	}
	s.value = value
	return s.wrote(0)
}

func (s state) made(index uint64) state {
	s.exists, s.value, s.holder, s.lockIndex = true, "", "", 0
	s.create, s.fence = index, 0
	return s
}

func (s state) removed() state {
	s = s.wrote(0)
	s.exists, s.value, s.holder, s.by = false, "", "", 0
	s.create, s.lockIndex, s.fence, s.shares, s.gone = 0, 0, 0, "", false
	return s
}

func (s state) unheld() state {
	s = s.wrote(0)
	s.holder, s.by = "", 0
	return s
}

// granted is the state after a grant with the fence, which is 0 if no answer has told it.
func (s state) granted(in input, fence uint64) state {
	if !s.exists {
		s = s.made(fence)
	}
	s = s.wrote(fence)
	s.holder, s.fence, s.lockIndex = in.session, fence, s.lockIndex+1
	s.highest = max(s.highest, fence)
	s.delayed, s.free, s.by = false, 0, 0
	s.sharedDelay, s.sharedFree = false, 0
	if !in.keeps {
		s.value = in.value
	}
	return s
}

// step returns the states that can follow.
func step(s state, in input, out output) []state {
	if out.outcome != unknown || in.kind == giveUp {
		return after(s, in, out)
	}
	list := append(after(s, in, out), s)
	if in.call != 0 {
		for i := range list {
			list[i].calls = withCall(list[i].calls, in.call)
		}
	}
	return list
}

// withCall adds a call to the calls that have yet to give up.
func withCall(calls string, call int) string {
	list := append(strings.Fields(calls), fmt.Sprintf("%020d", call))
	slices.Sort(list)
	return strings.Join(list, " ")
}

// withoutCall removes the call, and reports whether it was there.
func withoutCall(calls string, call int) (string, bool) {
	list := strings.Fields(calls)
	i, ok := slices.BinarySearch(list, fmt.Sprintf("%020d", call))
	if !ok {
		return calls, false
	}
	return strings.Join(slices.Delete(list, i, i+1), " "), true
}

func only(next state, ok bool) []state {
	if ok {
		return []state{next}
	}
	return nil
}

// after returns the states that can follow if the operation was done, or refused.
func after(s state, in input, out output) []state {
	switch in.kind {
	case get, read:
		return only(s.saw(out.entry, in.kind == get))
	case put:
		return answered(s, s.set(in.value), out)
	case swap:
		return swapped(s, in, out)
	case remove, removeIf:
		return deleted(s, in, out)
	case grant, try, acquire:
		return locked(s, in, out)
	case downgrade:
		return downgraded(s, in, out)
	case unlock, release:
		switch {
		case in.shared && in.kind == release:
			return sharesReleased(s, in, out)
		case in.shared:
			return shareReleased(s, in, out)
		}
		return released(s, in, out)
	case force:
		return forced(s, in, out)
	case endSession:
		if s.holder == in.session && s.exists {
			s = ended(s, in)
		}
		s = sharesEnded(s, in)
		return []state{s}
	case giveUp:
		return givenUp(s, in)
	}
	panic(fmt.Sprintf("histories: no such operation: %d", in.kind))
}

// answered is the state after a write, which its answer may show.
func answered(before, after state, out output) []state {
	if out.quiet || out.outcome == unknown {
		return []state{after}
	}
	next, ok := after.saw(out.entry, true)
	if !ok || !before.exists && next.create != next.mod {
		return nil
	}
	return []state{next}
}

func swapped(s state, in input, out output) []state {
	right := in.index == 0 && !s.exists || s.exists && in.index != 0 && s.fits(in.index)
	switch {
	case out.outcome == refused:
		// An index that is not told yet can be another one than in.index.
		if right && (s.mod != 0 || !s.exists) {
			return nil
		}
		return []state{s}
	case !right:
		return nil
	}
	if s.exists {
		s.mod = in.index
	}
	return answered(s, s.set(in.value), out)
}

func deleted(s state, in input, out output) []state {
	right := in.kind == remove || s.fits(in.index)
	switch {
	case out.outcome == refused:
		if !s.exists || right && s.mod != 0 {
			return nil
		}
		return []state{s}
	case !s.exists:
		if !out.quiet && out.outcome == done && out.entry.exists {
			return nil
		}
		return []state{s}
	case !right, !out.quiet && out.outcome == done && !out.entry.exists:
		return nil
	}
	return []state{s.removed()}
}

func locked(s state, in input, out output) []state {
	if out.outcome == refused {
		return obstructed(s, in, out)
	}
	if in.shared {
		return shareTaken(s, in, out)
	}
	if s.holder == in.session {
		return again(s, in, out)
	}
	fence := out.entry.fence
	if s.holder != "" || s.shares != "" || !s.newer(fence) ||
		out.outcome == done && out.until < max(s.free, s.sharedFree) {
		return nil
	}
	s = s.granted(in, fence)
	if out.outcome == done && out.entry.lockIndex != 0 && out.entry.lockIndex != s.lockIndex {
		return nil
	}
	if out.outcome == unknown {
		s.by = in.call
	}
	return []state{s}
}

// again returns the states after a call of the session that holds the lock.
func again(s state, in input, out output) []state {
	if in.kind == acquire { // K15, K16
		if s.fence == 0 && out.entry.fence > s.highest {
			s.fence, s.highest = out.entry.fence, out.entry.fence
		}
		if out.entry.fence != 0 && out.entry.fence != s.fence {
			return nil
		}
		return []state{s.set(in.value)}
	}
	// The call takes over a lock without a handle.
	if out.outcome == unknown {
		if !in.keeps {
			s = s.set(in.value)
		}
		return []state{s}
	}
	switch {
	case s.fence == 0 && out.entry.fence <= s.highest, s.fence != 0 && s.fence != out.entry.fence,
		s.mod != 0 && out.entry.fence > s.mod, s.lockIndex != out.entry.lockIndex:
		return nil
	}
	if s.fence == 0 {
		s.fence, s.highest = out.entry.fence, out.entry.fence
		if s.mod == 0 && s.above < s.fence {
			s.above = s.fence - 1
		}
	}
	s.by = 0
	if !in.keeps {
		s = s.set(in.value)
	}
	return []state{s}
}

func obstructed(s state, in input, out output) []state {
	ok := false // refused for no reason
	switch out.why {
	case shared:
		ok = s.shares != "" && !in.shared
	case held:
		if in.kind == acquire { // the answer does not name the holder
			return only(s, s.holder != "" && (s.holder != in.session || in.shared))
		}
		if s.shares != "" {
			return only(s, !in.shared && s.shares.has(out.entry.session, out.entry.fence))
		}
		ok = s.holder == out.entry.session &&
			(s.fence == out.entry.fence || s.fence == 0 && out.entry.fence > s.highest)
		if ok && s.fence == 0 {
			s.fence, s.highest = out.entry.fence, out.entry.fence
		}
	case delayed:
		ok = s.holder == "" && (s.delayed || !in.shared && s.sharedDelay)
	case queued:
		ok = s.holder == "" && (in.shared || s.shares == "")
	}
	return only(s, ok)
}

func released(s state, in input, out output) []state {
	holds := s.exists && s.holder == in.session
	if in.kind == unlock {
		holds = holds && (s.fence == in.fence || s.fence == 0 && in.fence > s.highest)
	}
	switch {
	case out.outcome == refused:
		if holds && (s.fence != 0 || in.kind == release) {
			return nil
		}
		return []state{s}
	case !holds:
		return nil
	case in.kind == release: // K21
		s = s.unheld()
		s.value = in.value
		return []state{s}
	case in.removes && s.create == in.fence && s.mod == in.fence:
		return []state{s.removed()}
	}
	return []state{s.unheld()}
}

// givenUp is the release, after the grant, of a grant that no caller was told of, if there was one.
func givenUp(s state, in input) []state {
	calls, ok := withoutCall(s.calls, in.call)
	if !ok {
		return nil
	}
	s.calls = calls
	for i, one := range s.shares.list() {
		if one.call == in.call {
			next := s.left(i, in)
			if in.keeps {
				next = append(next, s)
			}
			return next
		}
	}
	if in.keeps && s.by == in.call {
		return append(givenBack(s, in), s)
	}
	return givenBack(s, in)
}

func givenBack(s state, in input) []state {
	switch {
	case s.by != in.call:
		return []state{s}
	case !in.removes, s.mod != s.create:
		return []state{s.unheld()}
	case s.mod == 0: // no answer tells whether the grant created the key and was the last write
		return []state{s.unheld(), s.removed()}
	}
	return []state{s.removed()}
}

func forced(s state, in input, out output) []state {
	if s.shares != "" {
		return sharesForced(s, in, out)
	}
	holds := s.holder != "" && (s.fence == in.fence || s.fence == 0 && in.fence > s.highest)
	switch {
	case out.outcome == refused:
		if holds && s.fence != 0 {
			return nil
		}
		return []state{s}
	case !holds:
		return nil
	}
	next := s.unheld()
	next.delayed, next.free = true, in.from // whose delay it is, and so its length, is not modelled
	return []state{next}
}

func ended(s state, in input) state {
	if in.removes {
		s = s.removed()
	} else {
		s = s.unheld()
	}
	if in.delay > 0 {
		s.delayed, s.free = true, in.from+int64(in.delay)
	}
	return s
}

var hashSeed = maphash.MakeSeed()

// keyModel is the model that the checker is given.
var keyModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{state{}} },
	Step: func(s, in, out any) []any {
		var list []any
		for _, next := range step(s.(state), in.(input), out.(output)) {
			list = append(list, next)
		}
		return list
	},
	Equal: func(a, b any) bool { return a == b },
	Hash:  func(s any) uint64 { return maphash.Comparable(hashSeed, s.(state)) },
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		var keys []string
		of := map[string][]porcupine.Operation{}
		for _, o := range history {
			key := o.Input.(input).key
			if of[key] == nil {
				keys = append(keys, key)
			}
			of[key] = append(of[key], o)
		}
		slices.Sort(keys)
		var list [][]porcupine.Operation
		for _, key := range keys {
			list = append(list, of[key])
		}
		return list
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
	DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
}
