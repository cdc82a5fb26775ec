package lockdui

import "net/http"

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
