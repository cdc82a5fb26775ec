package lockdui

import (
	"cmp"
	"net/http"
	"slices"
	"time"
)

// locksView is the content of the page of locks.
type locksView struct {
	Prefix string // as it was typed
	Sort   string // the name of one of the orders
	Sorts  []choice

	// Longest is the lock that has the longest wait, of those whose keys have the prefix; nil if no
	// call waits for one of these.
	Longest *lock

	Locks  []*lock // of this window
	Window window
}

func (locksView) template() string { return "locks" }

// rowsOf returns the rows of the page of locks by their keys, and none for any other page.
func rowsOf(body content) map[string]*lock {
	v, _ := body.(locksView)
	rows := make(map[string]*lock, len(v.Locks))
	for _, l := range v.Locks {
		rows[l.Key] = l
	}
	return rows
}

// choice is a link to the page with its rows in one of the orders.
type choice struct {
	Name, Href string
	Chosen     bool
}

// order is an order of locks. Locks that compare equal are in the order of their keys.
type order struct {
	name    string
	compare func(a, b *lock) int
}

// orders are the orders of the page of locks. The first one is the default.
var orders = []order{
	{"longest wait", func(a, b *lock) int {
		return cmp.Or(
			earlier(a.Waiting(), b.Waiting()),
			cmp.Compare(len(b.Delays), len(a.Delays)),
			heldLonger(a, b))
	}},
	{"longest held", heldLonger},
	{"key", func(a, b *lock) int { return 0 }},
}

// heldLonger puts the lock first that has been held for longer. A lock that was held before the
// file was opened comes before the others, and a lock without a holder after them.
func heldLonger(a, b *lock) int {
	if len(a.Holders) == 0 || len(b.Holders) == 0 {
		return cmp.Compare(len(b.Holders), len(a.Holders))
	}
	return a.Held().Compare(b.Held())
}

// earlier compares instants. The zero time comes after all others.
func earlier(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// locks makes the page of locks.
func (h *handler) locks(r *http.Request, _ time.Time) (content, error) {
	query := r.URL.Query()
	v := locksView{Prefix: query.Get("prefix"), Sort: query.Get("sort")}
	all := locksOf(h.db, meant(v.Prefix))
	at := max(0, slices.IndexFunc(orders, func(o order) bool { return o.name == v.Sort }))
	v.Sort = orders[at].name
	query.Del("page")
	for i, order := range orders {
		v.Sorts = append(v.Sorts,
			choice{order.name, withQuery("./", query, "sort", order.name), i == at})
	}
	for _, l := range all {
		if !l.Waiting().IsZero() &&
			(v.Longest == nil || l.Waiting().Before(v.Longest.Waiting())) {
			v.Longest = l
		}
	}
	if v.Longest != nil {
		h.lookAhead(v.Longest)
	}
	slices.SortStableFunc(all, orders[at].compare)
	v.Locks, v.Window = windowOf(all, "./", r.URL.Query())
	return v, nil
}

// lookAhead notes what the holders of the lock wait for themselves: then the cause of the wait is
// there.
func (h *handler) lookAhead(l *lock) {
	_, waits := h.atWork()
	for i := range l.Holders {
		for _, w := range waits[l.Holders[i].ID] {
			l.Holders[i].WaitsFor = append(l.Holders[i].WaitsFor, w.place)
		}
	}
}
