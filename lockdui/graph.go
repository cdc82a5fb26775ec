package lockdui

import (
	"net/http"
	"slices"
	"time"

	"github.com/lockd/lockd"
)

// graphView is the content of the page of who waits for whom.
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
	Circular bool // the two wait for each other, maybe by way of others
}

// edgesListed is how many waits are listed.
const edgesListed = rowsPerPage

// graph makes the page of who waits for whom.
func (h *handler) graph(_ *http.Request, _ time.Time) (content, error) {
	var edges []edge
	for _, l := range locksOf(h.db, "") {
		for _, w := range l.Queue {
			for _, to := range l.Holders {
				edges = append(edges, edge{
					From: w.party, To: to.party, place: place{l.Key, l.Limit}, Since: w.Since,
				})
			}
		}
	}
	slices.SortStableFunc(edges, func(a, b edge) int { return a.Since.Compare(b.Since) })
	inCircle := circular(edges)
	v := graphView{All: len(edges)}
	for i, e := range edges {
		edges[i].Circular = e.Limit == 0 && inCircle[e.From.ID] && inCircle[e.To.ID]
		v.Circle = v.Circle || edges[i].Circular
	}
	v.Drawing, v.Omitted = draw(chained(edges))
	v.Edges = edges[:min(len(edges), edgesListed)]
	return v, nil
}

// chained returns the edges of chains: of two waits or more, one behind the other.
func chained(edges []edge) []edge {
	waits, waitedFor := ends(edges)
	return slices.DeleteFunc(slices.Clone(edges), func(e edge) bool {
		return !waits[e.To.ID] && !waitedFor[e.From.ID]
	})
}

// circular returns the sessions that are in a circle of waits, or between two: what is left when
// those that wait for nobody who is left, or whom nobody waits for who is left, are taken away. A
// slot counts for nothing, since any other slot of its semaphore would do.
func circular(edges []edge) map[lockd.SessionID]bool {
	left := slices.DeleteFunc(slices.Clone(edges), func(e edge) bool { return e.Limit > 0 })
	for before := -1; before != len(left); {
		before = len(left)
		waits, waitedFor := ends(left)
		left = slices.DeleteFunc(left, func(e edge) bool {
			return !waits[e.To.ID] || !waitedFor[e.From.ID]
		})
	}
	waits, _ := ends(left)
	return waits
}

// ends returns the sessions that wait, and those that are waited for.
func ends(edges []edge) (waits, waitedFor map[lockd.SessionID]bool) {
	waits, waitedFor = make(map[lockd.SessionID]bool), make(map[lockd.SessionID]bool)
	for _, e := range edges {
		waits[e.From.ID], waitedFor[e.To.ID] = true, true
	}
	return waits, waitedFor
}
