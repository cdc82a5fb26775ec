package lockdui

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/lockd/lockd"
)

// sessionsView is the content of the page of sessions.
type sessionsView struct {
	Filter string // as it was typed
	One    string // the ID of the session, if the page shows one session only

	Sessions []session // of this window
	Window   window    // of the sessions; if the page shows one session, of the locks that it holds

	Ended    []ending
	Complete bool // whether no end is missing between those in Ended
}

func (sessionsView) template() string { return "sessions" }

// session is a row of the table.
type session struct {
	Info     lockd.SessionInfo
	Made     time.Time // zero: its beginning was not noted
	Deadline time.Time // zero: it has no TTL
	Holds    []held
	Waits    []wait
}

// Party is what other pages show of the session.
func (s session) Party() party { return partyOf(s.Info) }

// Left is the time that is left until the session ends, unless it is renewed.
func (s session) Left(now time.Time) left {
	life := s.Info.TTL + s.Info.Grace
	return left{s.Deadline, life, "session, unless it is renewed, of " + setting(life), now}
}

// held is a lock that a session holds.
type held struct {
	place
	grant
	Since time.Time
}

// wait is a lock that a session waits for, and the place in the queue, from 1.
type wait struct {
	place
	Place int
	Since time.Time
	Mode  lockd.LockMode
}

// Shared reports whether the lock is to be shared with others.
func (w wait) Shared() bool { return w.Mode == lockd.Shared }

// first is when the longest wait of the session began; zero if it does not wait.
func (s session) first() time.Time {
	if len(s.Waits) == 0 {
		return time.Time{}
	}
	return s.Waits[0].Since
}

// Party is the ended session as others name it.
func (e ending) Party() party { return partyOf(e.Info) }

// sessions makes the page of sessions.
func (h *handler) sessions(r *http.Request, _ time.Time) (content, error) {
	query := r.URL.Query()
	v := sessionsView{Filter: query.Get("filter")}
	if text := query.Get("id"); text != "" {
		id, err := lockd.ParseSessionID(text)
		if err != nil {
			return nil, err
		}
		v.One = id.String()
	}
	made, ended, complete := h.roster.all()
	v.Complete = complete
	holds, waits := h.atWork()
	var all []session
	for s := range h.db.Sessions() {
		if id, info := s.ID(), s.Info(); v.shows(info) {
			deadline, _ := s.Deadline()
			all = append(all, session{info, made[id], deadline, holds[id], waits[id]})
		}
	}
	slices.SortStableFunc(all, func(a, b session) int { // else the oldest first, as they come
		return cmp.Or(earlier(a.first(), b.first()), cmp.Compare(len(b.Holds), len(a.Holds)))
	})
	for _, e := range ended {
		if v.shows(e.Info) {
			v.Ended = append(v.Ended, e)
		}
	}
	if v.One != "" && len(all) == 1 {
		v.Sessions = all
		all[0].Holds, v.Window = windowOf(all[0].Holds, "sessions", query)
	} else {
		v.Sessions, v.Window = windowOf(all, "sessions", query)
	}
	return v, nil
}

// shows reports whether the session is among those that are asked for.
func (v sessionsView) shows(info lockd.SessionInfo) bool {
	if v.One != "" {
		return info.ID.String() == v.One
	}
	filter := meant(v.Filter)
	return strings.HasPrefix(info.Name, filter) || strings.HasPrefix(info.Node, filter) ||
		strings.HasPrefix(info.ID.String(), strings.ToLower(filter))
}

// atWork returns what each session holds and waits for, the longest wait first.
func (h *handler) atWork() (holds map[lockd.SessionID][]held, waits map[lockd.SessionID][]wait) {
	holds = make(map[lockd.SessionID][]held)
	waits = make(map[lockd.SessionID][]wait)
	for info := range h.db.Locks() {
		at := place{semaphoreKey(info), info.Limit}
		for h := range holdersOf(info) {
			id := h.Session.ID
			holds[id] = append(holds[id], held{at, grant{h.Grant.Fence, h.Grant.Mode}, h.Since})
		}
		for i, w := range info.Queue {
			id := w.Session.ID
			waits[id] = append(waits[id], wait{at, i + 1, w.Since, w.Mode})
		}
	}
	for _, w := range waits {
		slices.SortStableFunc(w, func(a, b wait) int { return a.Since.Compare(b.Since) })
	}
	return holds, waits
}
