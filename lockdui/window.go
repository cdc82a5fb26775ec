package lockdui

import (
	"net/url"
	"slices"
	"strconv"
)

// rowsPerPage is how many rows a table shows at once.
const rowsPerPage = 200

// window is the part of a table's rows that a page shows, and the addresses of the parts before and
// after it.
type window struct {
	First, Last, All int    // numbers of rows, from 1; all are 0 if there are no rows
	Before, After    string // empty: there is none
}

// windowOf returns the rows of the page that the query asks for, or of the last page if it asks for
// a later one. Addresses keep the rest of the query, and lead to the same view.
func windowOf[T any](rows []T, view string, query url.Values) ([]T, window) {
	if len(rows) == 0 {
		return nil, window{}
	}
	last := (len(rows) - 1) / rowsPerPage // numbers of pages, from 0
	page, _ := strconv.Atoi(query.Get("page"))
	page = min(max(page-1, 0), last)
	first, end := page*rowsPerPage, min((page+1)*rowsPerPage, len(rows))
	w := window{First: first + 1, Last: end, All: len(rows)}
	if page > 0 {
		w.Before = withQuery(view, query, "page", strconv.Itoa(page))
	}
	if page < last {
		w.After = withQuery(view, query, "page", strconv.Itoa(page+2))
	}
	return slices.Clone(rows[first:end]), w // a stream keeps them, and must not keep all rows
}

// withQuery is the address of a view with the query changed in one place.
func withQuery(view string, query url.Values, name, value string) string {
	changed := make(url.Values, len(query)+1)
	for name, values := range query {
		changed[name] = values
	}
	changed.Set(name, value)
	return view + "?" + changed.Encode()
}
