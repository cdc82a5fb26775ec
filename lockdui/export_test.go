package lockdui

import (
	"net/http"
	"time"
)

// Blind keeps the pages from noting what happens to sessions until see is called.
func Blind(pages http.Handler) (see func()) {
	r := pages.(*handler).roster
	r.mu.Lock()
	return r.mu.Unlock
}

// FirstPage returns the rows of the first page of a table.
func FirstPage(rows []int) []int {
	page, _ := windowOf(rows, "", nil)
	return page
}

// Miss has the pages miss events of sessions, as they do when too many come at once.
func Miss(pages http.Handler) {
	h := pages.(*handler)
	h.roster.miss(h.db)
}

// Beginnings returns of how many sessions the pages know when they were made.
func Beginnings(pages http.Handler) int {
	made, _, _ := pages.(*handler).roster.all()
	return len(made)
}

// Size is a number of bytes as a page shows it.
func Size(n int64) string { return size(n) }

// Cost is a length of time that was measured as a page shows it.
func Cost(d time.Duration) string { return cost(d) }
