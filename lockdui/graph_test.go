package lockdui_test

import (
	"strings"
	"testing"
	"time"
)

// Ensure that waits are listed, and that chains of waits are drawn from the waiting sessions to the
// session that holds them all up.
func TestGraph_Chain(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		h.shows("/graph", "No session waits for another")
		root := h.holds("root", "a")
		middle := h.holds("middle", "b")
		h.waits(h.session("aside"), "a")
		h.shows("/graph", "Waits, none of them in a chain", "aside", "a", "root")
		h.waits(middle, "a")
		h.Advance(time.Second)
		h.waits(h.session("leaf"), "b")
		h.Advance(time.Second)
		r := h.shows("/graph", "Waits in chains", "All waits",
			"aside local a root local 2 s", "middle local a root local 2 s",
			"leaf local b middle local 1 s")
		if got := strings.Count(r.body, `class="arrow"`); got != 2 {
			t.Errorf("%d arrows: the wait that is in no chain is not drawn", got)
		}
		for _, box := range []string{
			`href="sessions?id=` + root.ID().String() + `" class="box root"><rect x="612"`,
			`href="sessions?id=` + middle.ID().String() + `" class="box"><rect x="312"`,
		} {
			if !strings.Contains(r.body, box) {
				t.Errorf("no %s in %s", box, r.body)
			}
		}
	})
}

// Ensure that sessions that wait for each other stand out, and sessions behind them do not.
func TestGraph_Circle(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		one, two, three := h.holds("one", "a"), h.holds("two", "b"), h.holds("three", "c")
		h.waits(one, "b")
		h.waits(two, "c")
		h.waits(three, "a")
		h.waits(h.session("outside"), "a")
		r := h.shows("/graph", "Some sessions wait for each other")
		if got := strings.Count(r.body, `class="arrow hot"`); got != 3 {
			t.Errorf("%d arrows are in the circle", got)
		}
		if got := strings.Count(r.body, `class="arrow"`); got != 1 {
			t.Errorf("%d arrows are not", got)
		}
	})
}

// Ensure that a wait of one circle for another is in neither.
func TestGraph_BetweenCircles(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		one, two := h.holds("one", "a"), h.holds("two", "b")
		three, four := h.holds("three", "c"), h.holds("four", "d")
		h.waits(one, "b")
		h.waits(two, "a")
		h.waits(three, "d")
		h.waits(four, "c")
		h.waits(two, "c")
		r := h.shows("/graph", "Some sessions wait for each other")
		if got := strings.Count(r.body, `class="arrow hot"`); got != 4 {
			t.Errorf("%d arrows are in the circles", got)
		}
		if got := strings.Count(r.body, `class="arrow"`); got != 1 {
			t.Errorf("%d arrows are between them", got)
		}
	})
}

// Ensure that goroutines that take turns by one session, as in a program that has one, raise no
// alarm: a session does not wait for itself as two sessions wait for each other.
func TestGraph_OwnSession(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		only := h.holds("only", "a")
		h.waits(only, "a")
		h.hides("/graph", "Some sessions wait", "Waits in chains")
		r := h.shows("/graph", "Waits, none of them in a chain", "All waits",
			"only local a only local")
		if strings.Contains(r.body, `"Held by" class="hot"`) {
			t.Error("the wait stands out as one in a circle")
		}

		other := h.holds("other", "b")
		h.waits(other, "a")
		h.waits(only, "b")
		r = h.shows("/graph", "Some sessions wait for each other")
		if got := strings.Count(r.body, `"Held by" class="hot"`); got != 2 {
			t.Errorf("%d waits stand out", got)
		}
		if got := strings.Count(r.body, `class="arrow hot"`); got != 2 {
			t.Errorf("%d arrows are in the circle", got)
		}
		if got := strings.Count(r.body, `class="arrow"`); got != 0 {
			t.Errorf("%d arrows are not", got)
		}
	})
}

// Ensure that a crowd is drawn in part, and that the page says so.
func TestGraph_Crowd(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		h.holds("root", "a")
		h.waits(h.holds("middle", "b"), "a")
		for range 50 {
			h.waits(h.session("w"), "b")
		}
		r := h.shows("/graph", "12 more sessions are not drawn")
		if got := strings.Count(r.body, `class="box`); got != 40 {
			t.Errorf("%d boxes", got)
		}
	})
}

// Ensure that a request for a shared lock that is delayed, and held by nobody, is shown to wait for
// the exclusive request in front of it.
func TestGraph_SharedBehindExclusiveInADelay(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		h.must(h.EndSession(h.holds("lost", "k").ID()))
		h.waits(h.session("writer"), "k")
		go h.session("reader").Lock(h.t.Context(), "k", sharing)
		h.WaitForWaiters("k", 2)
		h.shows("/graph", "reader local k writer local waits in front")
	})
}
