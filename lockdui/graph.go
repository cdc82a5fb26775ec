package lockdui

import (
	"net/http"
	"slices"
	"time"

	"github.com/lockd/lockd"
)

// graphView is the content of the page that shows which session waits for which.
type graphView struct {
	Edges []edge // the longest wait first
	All   int    // with those that are not listed

	Drawing *diagram // of what is chained; nil: nothing is
	Omitted int      // sessions that it leaves out
	Circle  bool     // whether some wait for each other
}

func (graphView) template() string { return "graph" }

// edge is a session that waits for another, which holds the lock of the key.
type edge struct {
	From, To party
	place
	Since    time.Time
	Ahead    bool // the other does not hold it: it waits in front, for the exclusive lock
	Circular bool // the two wait for each other, maybe by way of others
}

// own reports whether a call of the holder itself waits. The goroutine that has the lock can
// release it all the same, so the wait is in no circle, and is no link of a chain.
func (e edge) own() bool { return e.From.ID == e.To.ID }

// edgesListed is how many waits are listed.
const edgesListed = rowsPerPage

// graph makes the page that shows which session waits for which.
func (h *handler) graph(_ *http.Request, _ time.Time) (content, error) {
	var edges []edge
	for _, l := range locksOf(h.db, "") {
		edges = l.appendEdges(edges)
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return a.Since.Compare(b.Since) })
	v := graphView{All: len(edges)}
	circles := circlesOf(edges)
	for i, e := range edges {
		edges[i].Circular = circles.have(e)
		v.Circle = v.Circle || edges[i].Circular
	}
	v.Drawing, v.Omitted = draw(chained(edges))
	v.Edges = edges[:min(len(edges), edgesListed)]
	return v, nil
}

// appendEdges appends the waits for the lock. An exclusive request waits for every holder. A shared
// one waits for an exclusive holder, or else for the last exclusive request in front of it, which
// it does not overtake (R3).
func (l *lock) appendEdges(edges []edge) []edge {
	var ahead *waiter
	for i := range l.Queue {
		w := &l.Queue[i]
		e := edge{From: w.party, place: place{l.Key, l.Limit}, Since: w.Since}
		if w.Mode == lockd.Exclusive || !l.Shared() && len(l.Holders) > 0 {
			seen := make(map[lockd.SessionID]bool) // a session may share the lock several times
			for _, to := range l.Holders {
				if e.To = to.party; !seen[to.ID] {
					edges = append(edges, e)
				}
				seen[to.ID] = true
			}
		} else if ahead != nil {
			e.To, e.Ahead = ahead.party, true
			edges = append(edges, e)
		}
		if w.Mode == lockd.Exclusive {
			ahead = w
		}
	}
	return edges
}

// chained returns the edges of chains: of two waits or more, one behind the other.
func chained(edges []edge) []edge {
	others := slices.DeleteFunc(slices.Clone(edges), edge.own)
	waits, waitedFor := ends(others)
	return slices.DeleteFunc(others, func(e edge) bool {
		return !waits[e.To.ID] && !waitedFor[e.From.ID]
	})
}

// ends returns the sessions that wait, and those that are waited for.
func ends(edges []edge) (waits, waitedFor map[lockd.SessionID]bool) {
	waits, waitedFor = make(map[lockd.SessionID]bool), make(map[lockd.SessionID]bool)
	for _, e := range edges {
		waits[e.From.ID], waitedFor[e.To.ID] = true, true
	}
	return waits, waitedFor
}
