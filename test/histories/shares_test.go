package histories_test

import (
	"fmt"
	"slices"
	"strings"
)

// share is one grant of a shared lock.
type share struct {
	session string
	fence   uint64 // 0 if no answer has told it
	call    int    // the call, if no caller was told of its grant
}

// shares are the shares of a key, in order, as a text: states are compared.
type shares string

func (s shares) list() (list []share) {
	for _, text := range strings.Fields(string(s)) {
		var one share
		if _, err := fmt.Sscanf(strings.ReplaceAll(text, "/", " "), "%s %d %d", &one.session,
			&one.fence, &one.call); err != nil {
			panic(err)
		}
		list = append(list, one)
	}
	return list
}

func sharesOf(list []share) shares {
	var texts []string
	for _, one := range list {
		texts = append(texts, fmt.Sprintf("%s/%d/%d", one.session, one.fence, one.call))
	}
	slices.Sort(texts)
	return shares(strings.Join(texts, " "))
}

func (s shares) with(one share) shares { return sharesOf(append(s.list(), one)) }

func (s shares) without(i int) shares { return sharesOf(slices.Delete(s.list(), i, i+1)) }

// has reports whether the grant can be one of the shares.
func (s shares) has(session string, fence uint64) bool {
	return slices.ContainsFunc(s.list(), func(one share) bool {
		return one.session == session && (one.fence == fence || one.fence == 0)
	})
}

// of returns the place of a share of the session, or -1 if it has none.
func (s shares) of(session string) int {
	return slices.IndexFunc(s.list(), func(one share) bool { return one.session == session })
}

// newer reports whether a fence can be the fence of the next grant. A fence of 0 is not told.
func (s state) newer(fence uint64) bool {
	return fence == 0 || fence > max(s.highest, s.joined, s.mod, s.above)
}

// shareTaken is locked in the shared mode: a new share, or one that the session has no handle of.
func shareTaken(s state, in input, out output) (list []state) {
	if s.holder != "" {
		return nil // R1
	}
	told := out.outcome == done
	for i, one := range s.shares.list() {
		switch {
		case one.session != in.session:
			continue
		case told && (in.kind != acquire && s.lockIndex != out.entry.lockIndex ||
			one.fence != out.entry.fence && one.fence != 0):
			continue
		}
		next := s
		if told {
			next.shares = s.shares.without(i).with(share{one.session, out.entry.fence, 0})
		}
		if !in.keeps {
			next = next.set(in.value)
		}
		list = append(list, next)
	}
	fence := out.entry.fence
	if in.kind == acquire && s.shares.of(in.session) >= 0 { // R10
		return list
	}
	// Shares that are granted in one transaction have one fence (R3).
	together := s.shares != "" && fence == s.joined && max(s.mod, s.above) <= fence &&
		!s.shares.has(in.session, fence)
	if !s.newer(fence) && !together || told && out.until < s.free {
		return list
	}
	next, call := s, 0
	if s.shares == "" {
		next = s.granted(in, fence)
		next.holder, next.gone = "", !s.exists && in.removes
		next.sharedFree, next.sharedDelay = s.sharedFree, s.sharedDelay // R5
	} else if !in.keeps && s.value != in.value {
		next = s.set(in.value)
		next.mod = fence
		next.gone = s.gone && (fence == 0 || fence != s.fence) // R9
	}
	if told && in.kind != acquire && out.entry.lockIndex != next.lockIndex {
		return list
	}
	if !told {
		call = in.call
	}
	next.shares = s.shares.with(share{in.session, fence, call})
	next.joined = max(s.joined, fence)
	if fence == 0 && next.value != s.value && s.shares != "" && s.mod == s.joined {
		same := next
		same.mod = s.mod                       // granted in the transaction of the last grant
		same.gone = s.gone && s.mod != s.fence // R9
		list = append(list, same)
	}
	return append(list, next)
}

func shareReleased(s state, in input, out output) []state {
	i := slices.Index(s.shares.list(), share{in.session, in.fence, 0})
	switch {
	case out.outcome == refused:
		return only(s, i < 0)
	case i < 0:
		return nil
	}
	return s.left(i, in)
}

// sharesReleased is shareReleased over HTTP, where a session has one share at most and does not
// name it (R10).
func sharesReleased(s state, in input, out output) []state {
	i := s.shares.of(in.session)
	switch {
	case out.outcome == refused:
		return only(s, i < 0)
	case i < 0:
		return nil
	}
	list := s.left(i, in)
	if !in.keeps {
		for i := range list {
			list[i] = list[i].set(in.value)
		}
	}
	return list
}

// left returns the states after a share was released.
func (s state) left(i int, in input) []state {
	next := s
	if next.shares = s.shares.without(i); next.shares != "" {
		return []state{next}
	}
	next.gone = false
	switch {
	case !in.removes || !s.gone, s.mod != 0 && s.fence != 0 && s.mod != s.fence, // R9
		s.create != 0 && s.create <= in.opened:
		return []state{next}
	case s.mod == 0 || s.fence == 0 || s.create == 0: // no answer tells whether that is so
		return []state{next, s.removed()}
	}
	return []state{s.removed()}
}

// downgraded is R4.
func downgraded(s state, in input, out output) []state {
	holds := s.holder == in.session && (s.fence == in.fence || s.fence == 0)
	switch {
	case out.outcome == refused:
		return only(s, !holds || s.fence == 0)
	case !holds, !s.newer(out.entry.fence), out.outcome == done &&
		out.entry.lockIndex != s.lockIndex:
		return nil
	}
	fence := out.entry.fence
	next := s.unheld().wrote(fence)
	next.fence, next.highest, next.joined = fence, max(s.highest, fence), max(s.joined, fence)
	next.gone = in.removes && s.create == in.fence && s.mod == in.fence
	next.shares = next.shares.with(share{in.session, fence, 0})
	return []state{next}
}

// sharesForced is forced for a shared lock: all shares with the fence are taken.
func sharesForced(s state, in input, out output) (list []state) {
	none := s
	none.shares = ""
	choices := []state{none} // each share is kept, or taken
	certain := false
	for _, one := range s.shares.list() {
		for i, c := range slices.Clone(choices) {
			with := c
			with.shares = c.shares.with(one)
			switch one.fence {
			case in.fence:
				certain = true
			case 0:
				choices = append(choices, with)
			default:
				choices[i] = with
			}
		}
	}
	if out.outcome == refused {
		return only(s, !certain)
	}
	for _, c := range choices {
		if c.shares != s.shares {
			c.sharedDelay, c.gone = true, c.gone && c.shares != ""
			list = append(list, c)
		}
	}
	return list
}

// sharesEnded is ended for the shares of the session.
func sharesEnded(s state, in input) state {
	left := slices.DeleteFunc(s.shares.list(), func(one share) bool {
		return one.session == in.session
	})
	if len(left) == len(s.shares.list()) {
		return s
	}
	if s.shares = sharesOf(left); len(left) == 0 {
		s.gone = false
		if in.removes {
			s = s.removed()
		}
	}
	if in.delay > 0 { // R5
		s.sharedDelay, s.sharedFree = true, max(s.sharedFree, in.from+int64(in.delay))
	}
	return s
}
