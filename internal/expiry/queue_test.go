package expiry_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lockd/lockd/internal/expiry"
)

func TestItem_ZeroIsReady(t *testing.T) {
	q, _, _ := newQueue()
	var it expiry.Item
	if it.Queued() {
		t.Fatal("zero item is queued")
	}
	q.Remove(&it)
	q.Set(&it, start)
	if !it.Queued() || !it.At().Equal(start) {
		t.Fatalf("queued %t at %v, want true at %v", it.Queued(), it.At(), start)
	}
	mustPop(t, q, start, &it)
	if it.Queued() {
		t.Fatal("popped item is queued")
	}
}

func TestPop_DueFromItsInstantOn(t *testing.T) {
	at := start.Add(time.Second)
	for _, test := range []struct {
		name string
		now  time.Time
		due  bool
	}{
		{"Before", at.Add(-1), false},
		{"Exactly", at, true},
		{"After", at.Add(1), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			q, _, _ := newQueue()
			var it expiry.Item
			q.Set(&it, at)
			if due := q.Pop(test.now) != nil; due != test.due {
				t.Fatalf("due: got %t, want %t", due, test.due)
			}
		})
	}
}

func TestPop_OneInstantInOrderOfRankThenOfSet(t *testing.T) {
	q, _, _ := newQueue()
	notice := &expiry.Item{Rank: expiry.Notice}
	grant := &expiry.Item{Rank: expiry.Grant}
	end1, end2 := &expiry.Item{Rank: expiry.End}, &expiry.Item{Rank: expiry.End}
	renewal := &expiry.Item{Rank: expiry.Renewal}
	early := &expiry.Item{Rank: expiry.Grant}

	at := start.Add(time.Second)
	for _, it := range []*expiry.Item{notice, grant, end2, end1, renewal} {
		q.Set(it, at)
	}
	q.Set(end2, at) // to the same instant, but later than end1
	q.Set(early, at.Add(-1))
	mustPop(t, q, at, early, renewal, end1, end2, grant, notice)

	const n = 100
	items := make([]expiry.Item, n)
	for i := range items {
		q.Set(&items[i], at)
	}
	var first, again []*expiry.Item
	for i := range items {
		if i%3 != 0 {
			first = append(first, &items[i])
			continue
		}
		q.Set(&items[i], at)
		again = append(again, &items[i])
	}
	mustPop(t, q, at, append(first, again...)...)
}

func TestSet_Moves(t *testing.T) {
	q, _, _ := newQueue()
	var a, b, c expiry.Item
	q.Set(&a, start.Add(1))
	q.Set(&b, start.Add(2))
	q.Set(&c, start.Add(3))
	q.Set(&a, start.Add(4))
	q.Set(&c, start)
	if q.Len() != 3 {
		t.Fatalf("len: got %d, want 3", q.Len())
	}
	mustPop(t, q, start.Add(4), &c, &b, &a)
}

func TestSet_PanicsOnItemOfAnotherQueue(t *testing.T) {
	q, _, _ := newQueue()
	other, _, _ := newQueue()
	var it expiry.Item
	other.Set(&it, start)
	for name, call := range map[string]func(){
		"Set":    func() { q.Set(&it, start) },
		"Remove": func() { q.Remove(&it) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() != "expiry: item is in another heap" {
					t.Fatal("no panic")
				}
			}()
			call()
		})
	}
}

func TestRemove_MayBeRepeated(t *testing.T) {
	q, _, _ := newQueue()
	var a, b expiry.Item
	q.Set(&a, start)
	q.Set(&b, start)
	q.Remove(&a)
	q.Remove(&a)
	if a.Queued() || q.Len() != 1 {
		t.Fatalf("queued %t, len %d, want false, 1", a.Queued(), q.Len())
	}
	mustPop(t, q, start, &b)
}

func TestNext_IsTheEarliest(t *testing.T) {
	q, _, _ := newQueue()
	if _, ok := q.Next(); ok {
		t.Fatal("empty queue has a next")
	}
	var a, b expiry.Item
	q.Set(&a, start.Add(2))
	q.Set(&b, start) // the beginning of the epoch is an instant like others
	if at, ok := q.Next(); !ok || !at.Equal(start) {
		t.Fatalf("next: got %v, %t, want %v, true", at, ok, start)
	}
}

func TestPop_ManyItems(t *testing.T) {
	const n = 100_000
	q, _, _ := newQueue()
	items := make([]expiry.Item, n)
	for i := range items {
		q.Set(&items[i], start.Add(time.Duration(i*7919%n)))
	}
	last := start
	for range n {
		it := q.Pop(start.Add(n))
		if it == nil || it.At().Before(last) {
			t.Fatalf("got %v after %v", it, last)
		}
		last = it.At()
	}
	mustPop(t, q, start.Add(n))
}

// TestQueue_Model compares a queue with a slice that is sorted whenever it is looked at.
func TestQueue_Model(t *testing.T) {
	type entry struct {
		it   *expiry.Item
		at   time.Time
		sets int
	}
	rapid.Check(t, func(t *rapid.T) {
		q, _, _ := newQueue()
		now, sets := start, 0
		items := make([]expiry.Item, 8)
		for i := range items {
			items[i].Rank = expiry.Rank(i % 4)
		}
		var model []entry
		forget := func(it *expiry.Item) {
			model = slices.DeleteFunc(model, func(e entry) bool { return e.it == it })
		}
		pick := func(t *rapid.T) *expiry.Item {
			return &items[rapid.IntRange(0, len(items)-1).Draw(t, "item")]
		}
		t.Repeat(map[string]func(*rapid.T){
			"Set": func(t *rapid.T) {
				it := pick(t)
				at := now.Add(time.Duration(rapid.IntRange(-2, 4).Draw(t, "in")))
				sets++
				forget(it)
				model = append(model, entry{it, at, sets})
				q.Set(it, at)
			},
			"Remove": func(t *rapid.T) {
				it := pick(t)
				forget(it)
				q.Remove(it)
			},
			"Advance": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 3).Draw(t, "by")))
			},
			"Pop": func(t *rapid.T) {
				var want *expiry.Item
				if len(model) > 0 && !now.Before(model[0].at) {
					want = model[0].it
					forget(want)
				}
				if got := q.Pop(now); got != want {
					t.Fatalf("pop: got %p, want %p", got, want)
				}
			},
			"": func(t *rapid.T) {
				slices.SortFunc(model, func(a, b entry) int {
					return cmp.Or(
						a.at.Compare(b.at),
						cmp.Compare(a.it.Rank, b.it.Rank),
						cmp.Compare(a.sets, b.sets),
					)
				})
				if q.Len() != len(model) {
					t.Fatalf("len: got %d, want %d", q.Len(), len(model))
				}
				at, ok := q.Next()
				if ok != (len(model) > 0) || ok && !at.Equal(model[0].at) {
					t.Fatalf("next: got %v, %t, want the first of %v", at, ok, model)
				}
				for i := range items {
					queued := slices.ContainsFunc(model, func(e entry) bool {
						return e.it == &items[i]
					})
					if items[i].Queued() != queued {
						t.Fatalf("queued: got %t, want %t", !queued, queued)
					}
				}
			},
		})
	})
}
