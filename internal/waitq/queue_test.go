package waitq_test

import (
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockd/lockd/internal/waitq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// enter gives a waiter a place.
func enter[W any](q *waitq.Queue[W], w W) *waitq.Place[W] {
	p := new(waitq.Place[W])
	q.Push(w, p)
	return p
}

// push gives each waiter a place.
func push(q *waitq.Queue[string], waiters ...string) map[string]*waitq.Place[string] {
	places := make(map[string]*waitq.Place[string])
	for _, w := range waiters {
		places[w] = enter(q, w)
	}
	return places
}

// mustWait fails unless exactly these wait, in this order.
func mustWait(t *testing.T, q *waitq.Queue[string], want ...string) {
	t.Helper()
	var got []string
	for p := range q.Places() {
		got = append(got, p.Waiter)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("places: got %q, want %q", got, want)
	}
	if q.Len() != len(want) {
		t.Fatalf("len: got %d, want %d", q.Len(), len(want))
	}
	front := q.Front()
	if (front != nil) != (len(want) > 0) || front != nil && front.Waiter != want[0] {
		t.Fatalf("front: got %v, want the first of %q", front, want)
	}
}

func TestQueue_ZeroIsReady(t *testing.T) {
	var q waitq.Queue[string]
	mustWait(t, &q)
	if !q.Empty() {
		t.Fatal("zero queue is not empty")
	}
}

func TestQueue_FirstComeFirstServed(t *testing.T) {
	var q waitq.Queue[string]
	push(&q, "a", "b", "c")
	mustWait(t, &q, "a", "b", "c")
	q.Front().Leave()
	mustWait(t, &q, "b", "c")
	q.Front().Leave()
	enter(&q, "d")
	mustWait(t, &q, "c", "d")
}

// Ensure that a place which was left can be given to another waiter, even in another queue.
func TestQueue_PlaceIsUsedAgain(t *testing.T) {
	var q, other waitq.Queue[string]
	places := push(&q, "a", "b")
	places["a"].SetAside()
	places["a"].Leave()
	other.Push("c", places["a"])
	mustWait(t, &q, "b")
	mustWait(t, &other, "c")
	places["a"].Leave()
	q.Push("d", places["a"])
	mustWait(t, &q, "b", "d")
	if !other.Empty() {
		t.Fatal("the other queue is not empty")
	}
}

func TestQueue_CancelledWaiterHoldsUpNobody(t *testing.T) {
	for _, cancelled := range []string{"a", "b", "c"} {
		t.Run(cancelled, func(t *testing.T) {
			var q waitq.Queue[string]
			places := push(&q, "a", "b", "c")
			places[cancelled].Leave()
			rest := slices.DeleteFunc([]string{"a", "b", "c"}, func(w string) bool {
				return w == cancelled
			})
			mustWait(t, &q, rest...)
		})
	}
}

// The front waiter is served, and gives up before it is told. The next waiter moves to the front,
// and does not wait for one that is gone.
func TestQueue_WaiterCancelledWhileServedHoldsUpNobody(t *testing.T) {
	var q waitq.Queue[string]
	places := push(&q, "a", "b")
	places["a"].SetAside()
	places["a"].Leave()
	places["a"].Restore() // the grant was dropped too, but no waiter is left to restore
	mustWait(t, &q, "b")
	places["b"].Leave()
	if !q.Empty() {
		t.Fatal("queue is not empty")
	}
}

func TestQueue_OneWaiterInSeveral(t *testing.T) {
	var left, right waitq.Queue[string]
	enter(&left, "x")
	places := []*waitq.Place[string]{enter(&left, "a"), enter(&right, "a")}
	enter(&right, "y")
	for _, p := range places {
		p.Leave()
	}
	mustWait(t, &left, "x")
	mustWait(t, &right, "y")
}

func TestPlaces_WaiterJustYieldedMayGo(t *testing.T) {
	var q waitq.Queue[string]
	push(&q, "a", "b", "c", "d")
	var got []string
	for p := range q.Places() {
		got = append(got, p.Waiter)
		if p.Waiter == "b" {
			p.SetAside()
		} else {
			p.Leave()
		}
	}
	if want := []string{"a", "b", "c", "d"}; !slices.Equal(got, want) {
		t.Fatalf("places: got %q, want %q", got, want)
	}
	mustWait(t, &q)
}

// Tickets tell which waiter came first, whatever has become of the places since.
func TestPlaces_TicketsRise(t *testing.T) {
	var q waitq.Queue[string]
	places := push(&q, "a", "b", "c", "d")
	places["b"].SetAside()
	places["c"].Leave()
	for i, w := range []string{"b", "c", "d"} {
		before := []string{"a", "b", "c"}[i]
		if places[before].Ticket() >= places[w].Ticket() {
			t.Errorf("ticket of %s: not above that of %s", w, before)
		}
	}
	if got := slices.Collect(q.Places()); !slices.Equal(got, []*waitq.Place[string]{
		places["a"], places["d"],
	}) {
		t.Errorf("places: got %v", got)
	}
}

func TestPlaces_MayBeLeftEarly(t *testing.T) {
	var q waitq.Queue[string]
	push(&q, "a", "b")
	for p := range q.Places() {
		if p.Waiter != "a" {
			t.Fatalf("got %q", p.Waiter)
		}
		break
	}
}

func BenchmarkQueue_FrontPastManySetAside(b *testing.B) {
	var q waitq.Queue[int]
	for i := range 100_000 {
		enter(&q, i).SetAside()
	}
	enter(&q, -1)
	b.ReportAllocs()
	for b.Loop() {
		if q.Front().Waiter != -1 {
			b.Fatal("wrong front")
		}
	}
}
