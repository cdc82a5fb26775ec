package lockdui_test

import (
	"testing"

	"github.com/lockd/lockd/lockdui"
)

// Ensure that a page keeps its own rows alone: each stream has the page that it sent last, and must
// not keep the whole table with it.
func TestWindow_KeepsItsRows(t *testing.T) {
	rows := make([]int, 10_000)
	page := lockdui.FirstPage(rows)
	if len(page) != 200 || cap(page) >= 2*len(page) {
		t.Errorf("%d rows, with room for %d", len(page), cap(page))
	}
}
