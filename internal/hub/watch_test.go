package hub_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/lockd/lockd/internal/hub"
)

var errClosed = errors.New("closed")

// watch delivers events as the package comment says, until deliver returns false.
func watch(
	h *hub.Hub[int], scope hub.Scope, cursor hub.Cursor, deliver func([]hub.Event[int]) bool,
) error {
	var events []hub.Event[int]
	for {
		var topic *hub.Topic
		var err error
		events, cursor, topic, err = h.Follow(scope, cursor, events)
		if err != nil {
			return err
		}
		if !deliver(events) {
			h.Unsubscribe(topic)
			return nil
		}
		if topic == nil {
			continue
		}
		<-topic.Changed()
		if topic.First() == 0 {
			return errClosed
		}
		cursor = cursor.Advance(topic.First() - 1)
	}
}

// Ensure that watchers see every event of their scope, once and in order, however publishers and
// watchers interleave, and that no watcher waits in vain.
func TestWatch_GapFreeUnderConcurrency(t *testing.T) {
	const n = 3_000
	h := hub.New[int](2*n, 0)
	scopes := []hub.Scope{
		prefix(""), prefix("a"), prefix("a/"), prefix("b/"), exactly("a/1"), exactly("b/2"),
	}
	all := make([]hub.Event[int], n)
	for i := range all {
		index := uint64(1 + i/3) // three events to an index
		all[i] = event(index, []string{"a/1", "b/1", "b/2", "c"}[i%4])
		all[i].Body = i
	}

	var wg sync.WaitGroup
	for _, scope := range scopes {
		var want []int
		for _, e := range all {
			if e.Name == scope.Name || scope.Match == hub.Prefix &&
				strings.HasPrefix(e.Name, scope.Name) {
				want = append(want, e.Body)
			}
		}
		for range 2 {
			wg.Go(func() {
				var got []int
				err := watch(h, scope, hub.After(0), func(events []hub.Event[int]) bool {
					for _, e := range events {
						got = append(got, e.Body)
					}
					return len(got) < len(want)
				})
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%+v: got %d events, want %d, or out of order: %v",
						scope, len(got), len(want), err)
				}
			})
		}
	}
	wg.Go(func() {
		// Watchers that come and go must not disturb those that stay.
		for range n {
			h.Unsubscribe(h.Subscribe(exactly("a/1")))
			h.Unsubscribe(h.Subscribe(prefix("b/")))
		}
	})
	wg.Go(func() {
		for rest := all; len(rest) > 0; {
			batch := rest[:min(3*(1+len(rest)%5), len(rest))]
			rest = rest[len(batch):]
			h.Publish(batch, batch[len(batch)-1].Index)
		}
	})
	wg.Wait()
	if h.Topics() != 0 {
		t.Errorf("topics: got %d, want 0", h.Topics())
	}
}

// Ensure that a watcher which is overtaken is told so, and is never given events with a gap.
func TestWatch_OvertakenIsToldSo(t *testing.T) {
	const n = 5_000
	h := hub.New[int](8, 0)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			last := uint64(0)
			err := watch(h, prefix(""), hub.After(0), func(events []hub.Event[int]) bool {
				for _, e := range events {
					if e.Index != last+1 {
						t.Errorf("got %d after %d", e.Index, last)
					}
					last = e.Index
				}
				return last < n
			})
			if err != nil && !errors.Is(err, hub.ErrCompacted) {
				t.Errorf("got %v, want ErrCompacted", err)
			}
		})
	}
	for i := range uint64(n) {
		publish(h, event(1+i, "a"))
	}
	wg.Wait()
}

func TestWatch_EndsAtClose(t *testing.T) {
	h := hub.New[int](8, 0)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			err := watch(h, prefix(""), hub.After(0), func([]hub.Event[int]) bool { return true })
			if !errors.Is(err, errClosed) {
				t.Errorf("got %v, want closed", err)
			}
		})
	}
	h.Close()
	wg.Wait()
}

// TestHub_Model compares a hub with the list of all events that were ever published.
func TestHub_Model(t *testing.T) {
	names := []string{"", "a", "ab", "abc", "b", "ba"}
	type subscription struct {
		topic *hub.Topic
		scope hub.Scope
		since int // how many events there were
	}
	covers := func(s hub.Scope, e hub.Event[int]) bool {
		return s.Space&e.Space != 0 && (s.Name == e.Name ||
			s.Match == hub.Prefix && strings.HasPrefix(e.Name, s.Name))
	}
	rapid.Check(t, func(t *rapid.T) {
		history := rapid.SampledFrom([]int{1, 3, 8, 600}).Draw(t, "history")
		floor := rapid.Uint64Range(0, 3).Draw(t, "floor")
		h := hub.New[int](history, floor)
		index := floor
		var all []hub.Event[int]
		var subscriptions []subscription

		drawScope := func(t *rapid.T) hub.Scope {
			return hub.Scope{
				Space: rapid.SampledFrom([]byte{keys, sessions, keys | sessions, 0}).
					Draw(t, "space"),
				Match: rapid.SampledFrom([]hub.Match{hub.Exact, hub.Prefix}).Draw(t, "match"),
				Name:  rapid.SampledFrom(names).Draw(t, "name"),
			}
		}
		// lost is the highest index of which an event may be missing.
		kept := 0
		var publications []int // how many events each had
		lost := func() uint64 {
			if len(all) > kept {
				return all[len(all)-kept-1].Index
			}
			return floor
		}
		t.Repeat(map[string]func(*rapid.T){
			"Publish": func(t *rapid.T) {
				var batch []hub.Event[int]
				for range rapid.SampledFrom([]int{0, 1, 2, 5, 300}).Draw(t, "events") {
					if len(batch) == 0 || rapid.IntRange(0, 3).Draw(t, "same index") == 0 {
						index++
					}
					e := event(index, rapid.SampledFrom(names).Draw(t, "name"))
					e.Space = rapid.SampledFrom([]byte{keys, sessions}).Draw(t, "space")
					e.Body = len(all) + len(batch)
					e.Size = rapid.SampledFrom([]uint32{0, 1, hub.MaxBytes / 4, 2 * hub.MaxBytes}).
						Draw(t, "size")
					batch = append(batch, e)
				}
				index += rapid.Uint64Range(0, 1).Draw(t, "index without events")
				h.Publish(batch, index)
				all = append(all, batch...)
				if len(batch) > 0 {
					publications = append(publications, len(batch))
				}
				kept = newestThatFit(all, publications, history)
				clear(batch) // the hub must not have kept it
			},
			"Subscribe": func(t *rapid.T) {
				scope := drawScope(t)
				s := subscription{h.Subscribe(scope), scope, len(all)}
				subscriptions = append(subscriptions, s)
			},
			"Unsubscribe": func(t *rapid.T) {
				if len(subscriptions) == 0 {
					t.Skip("none")
				}
				i := rapid.IntRange(0, len(subscriptions)-1).Draw(t, "which")
				h.Unsubscribe(subscriptions[i].topic)
				subscriptions = slices.Delete(subscriptions, i, i+1)
			},
			"Read": func(t *rapid.T) {
				scope := drawScope(t)
				after := rapid.Uint64Range(0, index+1).Draw(t, "after")
				events, cursor, err := look(h, scope, hub.After(after), nil)
				if compacted := after < lost(); compacted != errors.Is(err, hub.ErrCompacted) {
					t.Fatalf("after %d, lost %d: got %v", after, lost(), err)
				} else if compacted {
					return
				}
				var got, want []int
				for len(events) > 0 {
					for _, e := range events {
						got = append(got, e.Body)
					}
					if events, cursor, err = look(h, scope, cursor, events); err != nil {
						t.Fatal(err)
					}
				}
				for _, e := range all {
					if e.Index > after && covers(scope, e) {
						want = append(want, e.Body)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%+v after %d: got %v, want %v", scope, after, got, want)
				}
				if cursor.Index() != max(index, after) {
					t.Fatalf("upto %d, want %d", cursor.Index(), max(index, after))
				}
			},
			"": func(t *rapid.T) {
				waiting := make(map[hub.Scope]bool)
				for _, s := range subscriptions {
					var first uint64
					for _, e := range all[s.since:] {
						if covers(s.scope, e) {
							first = e.Index
							break
						}
					}
					if s.topic.First() != first || fired(s.topic) != (first != 0) {
						t.Fatalf("%+v: first %d, want %d", s.scope, s.topic.First(), first)
					}
					if first == 0 {
						waiting[s.scope] = true
					}
				}
				if h.Topics() != len(waiting) {
					t.Fatalf("topics: got %d, want %d", h.Topics(), len(waiting))
				}
			},
		})
	})
}

// newestThatFit returns how many of the newest events are kept, given how many events each
// publication had. A publication is kept whole or not at all.
func newestThatFit(all []hub.Event[int], publications []int, history int) (kept int) {
	bytes := uint64(0)
	for n, size := range slices.Backward(publications) {
		for _, e := range all[len(all)-kept-size : len(all)-kept] {
			bytes += uint64(e.Size)
		}
		if n < len(publications)-1 && (kept >= history || bytes > hub.MaxBytes) {
			return kept
		}
		kept += size
	}
	return kept
}

// elsewhere subscribes to n scopes that do not concern the key "key".
func elsewhere(h *hub.Hub[int], n int) {
	for i := range n / 2 {
		h.Subscribe(exactly(fmt.Sprintf("elsewhere/%06d", i)))
		h.Subscribe(prefix(fmt.Sprintf("elsewhere/%06d/", i)))
	}
}

// Ensure that a full ring costs no allocation, also after a publication for which it had to grow.
func TestPublish_AllocatesNothingOnceTheRingIsFull(t *testing.T) {
	for _, topics := range []int{0, 1_000} {
		h := hub.New[int](64, 0)
		elsewhere(h, topics)
		batch := []hub.Event[int]{event(1, "key")}
		h.Publish(slices.Repeat(batch, 1_000), 1)
		publishNext := func() {
			batch[0].Index++
			h.Publish(batch, batch[0].Index)
		}
		for range 64 {
			publishNext()
		}
		if n := testing.AllocsPerRun(1_000, publishNext); n != 0 {
			t.Errorf("%d topics: got %v allocations, want 0", topics, n)
		}
	}
}

func TestIndex_IsTheNewestThatWasPublished(t *testing.T) {
	h := hub.New[int](10, 5)
	for _, index := range []uint64{5, 6, 9} {
		if index > 5 {
			publish(h, event(index, "a"))
		}
		if got := h.Index(); got != index {
			t.Errorf("index: got %d, want %d", got, index)
		}
	}
	h.Publish(nil, 12)
	if got := h.Index(); got != 12 {
		t.Errorf("after an index without events: got %d", got)
	}
}
