package waitq_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lockd/lockd/internal/waitq"
)

func TestPlace_ZeroHasBeenLeft(t *testing.T) {
	var p waitq.Place[string]
	p.SetAside()
	p.Restore()
	p.Leave()
	if p.Ahead(math.MaxInt) != 0 {
		t.Fatalf("ahead: got %d, want 0", p.Ahead(math.MaxInt))
	}
}

func TestAhead_CountsThoseWhoWait(t *testing.T) {
	var q waitq.Queue[string]
	places := push(&q, "a", "b", "c", "d")
	places["b"].SetAside()
	for w, want := range map[string]int{"a": 0, "b": 1, "c": 1, "d": 2} {
		if got := places[w].Ahead(math.MaxInt); got != want {
			t.Errorf("ahead of %s: got %d, want %d", w, got, want)
		}
		if got := places[w].Ahead(1); got != min(want, 1) {
			t.Errorf("ahead of %s, 1 at most: got %d, want %d", w, got, min(want, 1))
		}
	}
}

func TestSetAside_IsPassedOver(t *testing.T) {
	var q waitq.Queue[string]
	places := push(&q, "a", "b", "c")
	places["a"].SetAside()
	places["a"].SetAside()
	mustWait(t, &q, "b", "c")
	places["c"].SetAside()
	mustWait(t, &q, "b")
	places["b"].SetAside()
	mustWait(t, &q)
	if q.Empty() {
		t.Fatal("queue is empty, but three stand in it")
	}
}

func TestRestore_KeepsThePlace(t *testing.T) {
	order := []string{"a", "b", "c", "d", "e"}
	for _, restored := range [][]string{
		{"a", "b", "c", "d"},
		{"d", "c", "b", "a"},
		{"c", "a", "d", "b"},
	} {
		var q waitq.Queue[string]
		places := push(&q, order...)
		for _, w := range restored {
			places[w].SetAside()
		}
		for _, w := range restored {
			places[w].Restore()
			places[w].Restore()
		}
		mustWait(t, &q, order...)
		for left, w := range slices.Backward(order) { // each next to one that was restored
			places[w].Leave()
			mustWait(t, &q, order[:left]...)
		}
		if !q.Empty() {
			t.Fatal("queue is not empty")
		}
	}
}

// Ensure that the time to restore many places is in proportion to their number, in whatever order
// they were set aside, if those that were set aside last come first. Otherwise it would take
// minutes.
func TestRestore_OfMany(t *testing.T) {
	const many = 200_000
	began := time.Now()
	for _, fromBack := range []bool{true, false} {
		var q waitq.Queue[int]
		var aside []*waitq.Place[int]
		for i := range 3 * many {
			if p := enter(&q, i); i/many == 1 {
				aside = append(aside, p)
			}
		}
		if fromBack {
			slices.Reverse(aside)
		}
		for _, p := range aside {
			p.SetAside()
		}
		for _, p := range slices.Backward(aside) {
			p.Restore()
		}
		i := 0
		for p := range q.Places() {
			if p.Waiter != i {
				t.Fatalf("place %d: got waiter %d", i, p.Waiter)
			}
			i++
		}
		if i != 3*many || q.Len() != i {
			t.Fatalf("%d wait, and Len is %d", i, q.Len())
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}

// Ensure that the place behind which another stood may have been left, and used again for a waiter
// that came later: the other stands in front of that waiter then.
func TestRestore_BehindAPlaceThatIsUsedAgain(t *testing.T) {
	var q waitq.Queue[string]
	places := push(&q, "a", "b", "c")
	places["b"].SetAside()
	places["a"].Leave()
	q.Push("d", places["a"])
	places["b"].Restore()
	mustWait(t, &q, "b", "c", "d")
}

func TestLeave_MayBeRepeated(t *testing.T) {
	var q waitq.Queue[string]
	places := push(&q, "a", "b")
	places["b"].SetAside()
	for range 2 {
		places["a"].Leave()
		places["b"].Leave()
	}
	mustWait(t, &q)
	if !q.Empty() {
		t.Fatal("queue is not empty")
	}
}

func TestLeave_IsForGood(t *testing.T) {
	var q waitq.Queue[string]
	places := push(&q, "a", "b")
	places["a"].Leave()
	places["a"].SetAside()
	places["a"].Restore()
	mustWait(t, &q, "b")
	if places["a"].Ahead(math.MaxInt) != 0 {
		t.Fatalf("ahead: got %d, want 0", places["a"].Ahead(math.MaxInt))
	}
}

// TestQueue_Model compares a queue with a slice of its waiters.
func TestQueue_Model(t *testing.T) {
	type stand struct {
		place *waitq.Place[int]
		aside bool
	}
	rapid.Check(t, func(t *rapid.T) {
		var q waitq.Queue[int]
		var ever []*waitq.Place[int]
		var model []stand

		pick := func(t *rapid.T) *waitq.Place[int] {
			if len(ever) == 0 {
				t.Skip("nobody there")
			}
			return ever[rapid.IntRange(0, len(ever)-1).Draw(t, "place")]
		}
		find := func(p *waitq.Place[int]) *stand {
			for i := range model {
				if model[i].place == p {
					return &model[i]
				}
			}
			return &stand{} // it has been left
		}
		waiting := func() (places []*waitq.Place[int]) {
			for _, s := range model {
				if !s.aside {
					places = append(places, s.place)
				}
			}
			return places
		}
		t.Repeat(map[string]func(*rapid.T){
			"Push": func(t *rapid.T) {
				p := enter(&q, len(ever))
				ever = append(ever, p)
				model = append(model, stand{place: p})
			},
			"SetAside": func(t *rapid.T) {
				p := pick(t)
				find(p).aside = true
				p.SetAside()
			},
			"Restore": func(t *rapid.T) {
				p := pick(t)
				find(p).aside = false
				p.Restore()
			},
			"Leave": func(t *rapid.T) {
				p := pick(t)
				model = slices.DeleteFunc(model, func(s stand) bool { return s.place == p })
				p.Leave()
			},
			"Ahead": func(t *rapid.T) {
				p := pick(t)
				want := 0
				for _, s := range model {
					if !s.aside && s.place.Waiter < p.Waiter && find(p).place != nil {
						want++
					}
				}
				if got := p.Ahead(math.MaxInt); got != want {
					t.Fatalf("ahead: got %d, want %d", got, want)
				}
			},
			"": func(t *rapid.T) {
				want := waiting()
				var front *waitq.Place[int]
				if len(want) > 0 {
					front = want[0]
				}
				if got := q.Front(); got != front {
					t.Fatalf("front: got %p, want %p", got, front)
				}
				if q.Len() != len(want) || q.Empty() != (len(model) == 0) {
					t.Fatalf("len %d, empty %t, want %v", q.Len(), q.Empty(), model)
				}
				i := 0
				for p := range q.Places() {
					if p != want[i] {
						t.Fatalf("places: got %d at %d, want %d", p.Waiter, i, want[i].Waiter)
					}
					i++
				}
				if i != len(want) {
					t.Fatalf("places: got %d, want %d", i, len(want))
				}
			},
		})
	})
}
