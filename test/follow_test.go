package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd"
)

// replica is a Follow that a test takes one step at a time, and the copy that is made of it.
type replica struct {
	h      *harness
	prefix string
	next   func() (lockd.Event, error, bool)
	copy   map[string]string
	index  uint64 // of the last event
	gaps   int
}

// follows begins to follow the prefix until the test is over.
func (h *harness) follows(ctx context.Context, prefix string) *replica {
	f := &replica{h: h, prefix: prefix}
	var stop func()
	f.next, stop = iter.Pull2(h.Follow(ctx, prefix))
	h.t.Cleanup(stop)
	return f
}

// step takes one event, keeps the copy in step with it, and returns the event in words.
func (f *replica) step() string {
	f.h.t.Helper()
	e, err, ok := f.next()
	if err != nil || !ok {
		f.h.t.Fatalf("got %v, %v", err, ok)
	}
	if e.Index < f.index {
		f.h.t.Fatalf("index %d after %d", e.Index, f.index)
	}
	f.index = e.Index
	if e.Kind != lockd.StateLoaded {
		if e.State != nil || f.copy == nil {
			f.h.t.Fatalf("a change with a state, or before one: %+v", e)
		}
		delete(f.copy, e.Key)
		if e.Kind == lockd.KeyPut {
			f.copy[e.Key] = string(e.Entry.Value)
		}
		return told(e)
	}
	gap := errors.Is(e.Cause, lockd.ErrCompacted)
	if gap != (f.copy != nil) || !gap && e.Cause != nil || e.State.Index() != e.Index {
		f.h.t.Fatalf("a state with cause %v, at index %d and %d", e.Cause, e.Index, e.State.Index())
	}
	if gap {
		f.gaps++
	}
	f.copy = contentsOf(e.State, f.prefix)
	return fmt.Sprintf("%v %v %v", e.Kind, f.copy, e.Cause)
}

// want fails the test unless these events are next.
func (f *replica) want(texts ...string) {
	f.h.t.Helper()
	for _, text := range texts {
		if got := f.step(); got != text {
			f.h.t.Fatalf("got %q, want %q", got, text)
		}
	}
}

// ends fails the test unless the error is next, and nothing after it.
func (f *replica) ends(want error) {
	f.h.t.Helper()
	e, err, ok := f.next()
	if !ok || !errors.Is(err, want) || e.Kind != 0 ||
		!strings.HasPrefix(err.Error(), `lockd: follow "`+f.prefix+`": `) {
		f.h.t.Fatalf("got %q, %v, want %v", told(e), err, want)
	}
	if e, err, ok := f.next(); ok {
		f.h.t.Fatalf("after the end: got %q, %v", told(e), err)
	}
	if n := f.h.Topics(); n != 0 {
		f.h.t.Errorf("%d topics are left", n)
	}
}

func contentsOf(s *lockd.Snapshot, prefix string) map[string]string {
	contents := make(map[string]string)
	for key, e := range s.Prefix(prefix) {
		contents[key] = string(e.Value)
	}
	return contents
}

// Ensure that the state comes first, and then each change in it, and no other.
func TestFollow_StateAndThenEachChange(t *testing.T) {
	each(t, func(h *harness) {
		h.put("a/1", "one", 0)
		h.put("b/1", "elsewhere", 0)
		f := h.follows(h.t.Context(), "a/")
		f.want("state loaded map[a/1:one] <nil>")
		h.put("a/2", "two", 0)
		h.put("b/2", "elsewhere", 0)
		h.put("a/1", "uno", 0)
		h.must(second(h.Delete("a/2")))
		f.want("put a/2=two", "put a/1=uno", "deleted a/2")
		lock := h.lock(h.session(nil), "a/1")
		h.must(lock.Unlock())
		f.want("put a/1=uno", "put a/1=uno") // held, and released

		all := h.follows(h.t.Context(), "")
		all.want("state loaded map[a/1:uno b/1:elsewhere b/2:elsewhere] <nil>")
		none := h.follows(h.t.Context(), "c/")
		none.want("state loaded map[] <nil>")
	})
}

// Ensure that after a gap the state comes again, with the reason, and then the next changes: right
// after the first state, and after a change; and that changes elsewhere make no gap.
func TestFollow_B12_StateAgainAfterAGap(t *testing.T) {
	each(t, func(h *harness) {
		h.shortHistory() // 10 events
		compacted := lockd.ErrCompacted.Error()
		h.put("a/1", "one", 0)
		h.put("a/2", "two", 0)
		f := h.follows(h.t.Context(), "a/")
		f.want("state loaded map[a/1:one a/2:two] <nil>")
		h.must(second(h.Delete("a/2")))
		h.writes("a/3", 10)
		h.put("a/3", "three", 0)
		f.want("state loaded map[a/1:one a/3:three] " + compacted)
		h.put("a/4", "four", 0)
		f.want("put a/4=four")
		h.must(second(h.Delete("a/1")))
		h.writes("a/3", 10)
		h.put("a/3", "drei", 0)
		f.want("state loaded map[a/3:drei a/4:four] " + compacted)
		h.put("a/4", "vier", 0)
		f.want("put a/4=vier")
		h.writes("b", 30)
		h.put("a/4", "quattro", 0)
		f.want("put a/4=quattro")
	})
}

// Ensure that Follow ends with its context, before the state or while it waits.
func TestFollow_ContextEnds(t *testing.T) {
	each(t, func(h *harness) {
		over, cancel := context.WithCancel(h.t.Context())
		cancel()
		h.follows(over, "a/").ends(context.Canceled)

		ctx, stop := context.WithCancel(h.t.Context())
		f := h.follows(ctx, "a/")
		f.want("state loaded map[] <nil>")
		h.put("a/1", "one", 0)
		f.want("put a/1=one")
		stopping := start(func() error { h.settle(); stop(); return nil })
		f.ends(context.Canceled)
		h.must(stopping.wait())
	})
}

// Ensure that a loop that is left, or panics, leaves nothing behind.
func TestFollow_LoopIsLeft(t *testing.T) {
	each(t, func(h *harness) {
		for range h.Follow(h.t.Context(), "") {
			break
		}
		h.put("k", "v", 0)
		func() {
			defer func() { _ = recover() }()
			for e := range h.Follow(h.t.Context(), "") {
				if e.Kind == lockd.KeyPut {
					panic("the loop's own")
				}
				h.put("k", "w", 0)
			}
		}()
		if n := h.Topics(); n != 0 {
			h.t.Errorf("%d topics are left", n)
		}
	})
}

// Ensure that Follow ends with the database, also if it has just fallen behind; and that for a
// closed database it shows the last state.
func TestFollow_G12_Close(t *testing.T) {
	each(t, func(h *harness) {
		h.shortHistory()
		h.put("a/1", "one", 0)
		behind := h.follows(h.t.Context(), "a/")
		behind.want("state loaded map[a/1:one] <nil>")
		h.writes("a/1", 30)
		h.put("a/1", "one", 0)
		waits := h.follows(h.t.Context(), "a/")
		waits.want("state loaded map[a/1:one] <nil>")
		closing := start(func() error {
			h.settle()
			return h.Close()
		})
		waits.ends(lockd.ErrClosed)
		h.must(closing.wait())
		behind.ends(lockd.ErrClosed)
		after := h.follows(h.t.Context(), "a/1")
		after.want("state loaded map[a/1:one] <nil>")
		after.ends(lockd.ErrClosed)
	})
}

// Ensure that neither the state nor a change shows what is not durable, and that nothing is missed
// between the two.
func TestFollow_G3_ShowsWhatIsDurable(t *testing.T) {
	onFile(t, func(h *harness) {
		c := h.commits()
		h.put("a", "durable", 0)
		early := h.follows(h.t.Context(), "")
		early.want("state loaded map[a:durable] <nil>")
		writing := c.held(func() error { return second(h.Put("a", []byte("new"), nil)) })
		late := h.follows(h.t.Context(), "")
		late.want("state loaded map[a:durable] <nil>")
		told := make(chan string, 2)
		for _, f := range []*replica{early, late} {
			go func() { told <- f.step() }()
		}
		h.settle()
		if len(told) > 0 {
			h.t.Errorf("told of what is not durable: %s", <-told)
		}
		c.release(nil)
		h.must(writing.wait())
		for range 2 {
			if got := <-told; got != "put a=new" {
				h.t.Errorf("got %q", got)
			}
		}

		failing := c.held(func() error { return second(h.Put("a", []byte("lost"), nil)) })
		c.release(errDisk)
		mustFail(h.t, "put", failing.wait())
		h.put("a", "last", 0)
		early.want("put a=last")
		late.want("put a=last")
	})
}

// Ensure that a copy that is made from the events equals the database, whatever is written, and
// however far the follower falls behind.
func TestFollow_CopyIsInStep(t *testing.T) {
	for _, history := range []int{1, 5, 100} {
		inBubble(t, "", func(h *harness) {
			h.must(h.Close())
			h.opts.History = history
			h.open()
			seed := rand.Uint64()
			h.t.Logf("history %d, seed %d", history, seed)
			random := rand.New(rand.NewPCG(seed, 0))
			keys := []string{"a/1", "a/2", "a/3", "a/4", "b"}
			write := func(tx *lockd.Txn) (err error) {
				for range 1 + random.IntN(4) {
					if key := keys[random.IntN(len(keys))]; random.IntN(3) == 0 {
						_, err = tx.Delete(key)
					} else {
						_, err = tx.Put(key, fmt.Append(nil, random.IntN(100)), nil)
					}
				}
				return err
			}
			f := h.follows(h.t.Context(), "a/")
			f.step()
			for range 200 {
				for range random.IntN(6) {
					h.must(h.Update(write))
				}
				h.put("a/last", fmt.Sprint(random.Uint64()), 0)
				for !maps.Equal(f.copy, contentsOf(h.Snapshot(), "a/")) {
					f.step()
				}
			}
			if f.gaps == 0 && history < 100 || f.gaps > 0 && history == 100 {
				h.t.Errorf("%d gaps", f.gaps)
			}
			if !slices.Contains(slices.Collect(maps.Keys(f.copy)), "a/last") {
				h.t.Errorf("the copy is %v", f.copy)
			}
		})
	}
}
