package histories_test

import (
	"errors"
	"math"
	"slices"

	"github.com/lockd/lockd"
)

// ends returns the ends of all sessions as operations of every key, and what is wrong with them. A
// session can end by itself, so the watches tell which have ended. The earliest instant of an end
// follows from the calls, and with a TTL from the last renewal (G6).
func (w *world) ends() (records []*record, wrong []string) {
	asked := map[[2]string]bool{}
	for _, r := range w.records {
		asked[[2]string{r.session, r.key}] = true
	}
	for _, s := range w.sessions {
		in, call, back, problem := w.end(s)
		if problem != "" {
			wrong = append(wrong, "session "+s.id+": "+problem)
		}
		if back == 0 {
			continue
		}
		in.kind, in.session, in.removes = endSession, s.id, s.deletes
		for _, key := range w.keys {
			in.key = key
			if !asked[[2]string{s.id, key}] {
				continue // the session never asked for that lock
			}
			records = append(records, &record{input: in, call: call, back: back, client: -1})
		}
	}
	return records, wrong
}

// end returns how the session ended, and between which stamps; back is 0 if it did not.
func (w *world) end(s *session) (in input, call, back int64, problem string) {
	for _, e := range w.eras[s.era:] {
		for _, event := range e.ends {
			if event.Kind != lockd.SessionEnded || event.Session.ID.String() != s.id {
				continue
			}
			in, call, problem = w.endSeen(s, e, event)
			back = event.at
			for _, c := range s.closings {
				if c.back > call {
					back = min(back, c.back)
				}
			}
			return in, call, max(back, call+1), problem
		}
		if e.number == len(w.eras)-1 {
			return in, 0, 0, ""
		}
		if next := w.eras[e.number+1]; !next.alive[s.id] {
			outlived := !s.bound && s.ttl > 0 && next.opened-next.openCalled >= int64(s.ttl)
			if !e.unclean && !outlived { // else it has ended before the watch began
				problem = "it is gone after a Close, and no event told of its end"
			}
			return w.endUnseen(s, next), w.earliest(s, next), next.opened, problem
		}
	}
	return in, 0, 0, "the history has no end"
}

// endSeen is an end that an event told of.
func (w *world) endSeen(s *session, e *era, event seen) (in input, call int64, problem string) {
	call = math.MaxInt64
	for _, c := range s.closings {
		if c.owner == errors.Is(event.Cause, lockd.ErrClosed) {
			call = min(call, c.call)
		}
	}
	switch {
	case errors.Is(event.Cause, lockd.ErrExpired):
		call = w.runsOut(s)
		if s.ttl == 0 {
			return in, call, "it has no TTL, and has expired"
		}
		if event.at < call {
			problem = "G6: it ended before its TTL had passed since its last renewal"
		}
		in.delay = s.delay
	case errors.Is(event.Cause, lockd.ErrDestroyed):
		in.delay = s.delay
	case errors.Is(event.Cause, lockd.ErrClosed):
		if s.bound && e.shut != 0 {
			call = min(call, e.shut)
		}
	default:
		return in, event.at - 1, "its cause is " + event.Cause.Error()
	}
	if call == math.MaxInt64 {
		return in, event.at - 1, "it has ended, and nothing ended it"
	}
	in.from = call
	return in, call, problem
}

// endUnseen is an end by Open, or in the commit that the crash cut off.
func (w *world) endUnseen(s *session, next *era) input {
	in := input{delay: s.delay, from: w.earliest(s, next)}
	for _, c := range s.closings {
		if c.owner && c.back == 0 {
			in.from -= int64(s.delay) // the owner may have closed it, without a delay
		}
	}
	return in
}

// earliest is the earliest instant at which a session that was gone after a crash can have ended.
func (w *world) earliest(s *session, next *era) int64 {
	call := next.openCalled
	for _, c := range s.closings {
		call = min(call, c.call)
	}
	if s.ttl > 0 {
		call = min(call, w.runsOut(s))
	}
	return call
}

// runsOut is the instant at which the TTL has passed since the last renewal.
func (w *world) runsOut(s *session) int64 {
	last := slices.Max(append([]int64{s.made}, s.renewals...))
	for _, e := range w.eras[s.era:] {
		if e.alive[s.id] {
			last = max(last, e.openCalled)
		}
	}
	return last + int64(s.ttl)
}
