package lockdui

import (
	"iter"
	"net/http"
	"slices"
	"time"

	"github.com/lockd/lockd"
)

// graphView is the content of the page that shows which session waits for which.
type graphView struct {
	Edges []edge // the longest wait first
	All   int    // the number of waits, listed or not

	Drawing *diagram // of the waits in chains; nil: there are none
	Omitted int      // sessions that the drawing leaves out
	Circle  bool     // whether some sessions wait for each other
}

func (graphView) template() string { return "graph" }

// edge is the wait of a session for another one, which holds the lock of the key unless Ahead is
// set.
type edge struct {
	From, To party
	place
	Since    time.Time
	Ahead    bool // To does not hold the lock: it waits in front of From, to have it exclusively
	Circular bool // From and To wait for each other, maybe by way of others
}

// own reports whether the session waits for itself. The goroutine that has the lock can release it
// while another goroutine of the session waits, so the wait is in no circle and in no chain.
func (e edge) own() bool { return e.From.ID == e.To.ID }

// request is a call that waits, and the sessions that it waits for. All requests that wait for the
// holders of a lock have one list of these holders: there may be a thousand requests and a thousand
// holders.
type request struct {
	edge // to any of them
	to   []party
}

// edges yields the waits of the requests.
func edges(requests []request, circles *circles) iter.Seq[edge] {
	return func(yield func(edge) bool) {
		for _, r := range requests {
			e := r.edge
			for _, e.To = range r.to {
				e.Circular = circles.have(e)
				if !yield(e) {
					return
				}
			}
		}
	}
}

// edgesListed is how many waits are listed.
const edgesListed = rowsPerPage

// graph makes the page that shows which session waits for which.
func (h *handler) graph(_ *http.Request, _ time.Time) (content, error) {
	var requests []request
	for _, l := range locksOf(h.db, "") {
		requests = l.appendRequests(requests)
	}
	slices.SortStableFunc(requests, func(a, b request) int { return a.Since.Compare(b.Since) })
	circles := circlesOf(requests)
	v := graphView{Circle: circles.found}
	for _, r := range requests {
		v.All += len(r.to)
	}
	for e := range edges(requests, circles) {
		if len(v.Edges) == edgesListed {
			break
		}
		v.Edges = append(v.Edges, e)
	}
	v.Drawing, v.Omitted = draw(chained(requests, circles))
	return v, nil
}

// appendRequests appends the calls that wait for the lock. An exclusive request waits for every
// holder. A shared one waits for an exclusive holder, or else for the last exclusive request in
// front of it, which it does not overtake (R3).
func (l *lock) appendRequests(requests []request) []request {
	if len(l.Queue) == 0 {
		return requests
	}
	var holders []party
	seen := make(map[lockd.SessionID]bool) // a session may share the lock several times
	for _, h := range l.Holders {
		if !seen[h.ID] {
			holders = append(holders, h.party)
		}
		seen[h.ID] = true
	}
	var ahead []party // the last exclusive request so far; empty: there is none
	for _, w := range l.Queue {
		r := request{edge{From: w.party, place: place{l.Key, l.Limit}, Since: w.Since}, holders}
		if w.Mode == lockd.Shared && (l.Shared() || len(holders) == 0) {
			r.to, r.Ahead = ahead, true
		}
		requests = append(requests, r)
		if w.Mode == lockd.Exclusive {
			ahead = []party{w.party}
		}
	}
	return requests
}

// chained yields the edges that are part of a chain: of two waits or more, where each session waits
// for the next. The edges of circles come first, so that there is room for them in a drawing.
func chained(requests []request, circles *circles) iter.Seq[edge] {
	waits, waitedFor := make(map[lockd.SessionID]bool), make(map[lockd.SessionID]bool)
	for _, r := range requests {
		for _, to := range r.to {
			if to.ID != r.From.ID {
				waits[r.From.ID], waitedFor[to.ID] = true, true
			}
		}
	}
	return func(yield func(edge) bool) {
		for _, circular := range []bool{true, false} {
			for e := range edges(requests, circles) {
				inChain := !e.own() && (waits[e.To.ID] || waitedFor[e.From.ID])
				if inChain && e.Circular == circular && !yield(e) {
					return
				}
			}
		}
	}
}
