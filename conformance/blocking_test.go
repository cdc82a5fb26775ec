package conformance_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// failed reports an error in a goroutine other than the test's.
func failed(h *harness, err error) int {
	if err != nil {
		h.t.Error(err)
	}
	return 0
}

// reply is the answer to a blocking query.
type reply struct {
	pairs api.KVPairs
	index uint64
	took  time.Duration // of the server's time
	err   error
}

// blockedGet begins a blocking query of a key, which waits for up to the duration, 0 for the
// default.
func (h *harness) blockedGet(key string, index uint64, wait time.Duration) <-chan reply {
	return call(func() reply {
		began := h.now()
		pair, meta, err := h.KV().Get(key, &api.QueryOptions{WaitIndex: index, WaitTime: wait})
		if err != nil {
			return reply{err: err}
		}
		r := reply{index: meta.LastIndex, took: h.now().Sub(began)}
		if pair != nil {
			r.pairs = api.KVPairs{pair}
		}
		return r
	})
}

// blockedList begins a blocking query of a prefix.
func (h *harness) blockedList(prefix string, index uint64, wait time.Duration) <-chan reply {
	return call(func() reply {
		began := h.now()
		pairs, meta, err := h.KV().List(prefix,
			&api.QueryOptions{WaitIndex: index, WaitTime: wait})
		if err != nil {
			return reply{err: err}
		}
		return reply{pairs: pairs, index: meta.LastIndex, took: h.now().Sub(began)}
	})
}

func TestB2B5_AnOldIndexIsAnsweredAtOnce(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("a", "1")
		for _, index := range []uint64{0, 1, p.ModifyIndex - 1} {
			r := receive(h, h.blockedGet("a", index, time.Minute))
			check(h.t, r.err)
			equal(h, "index", r.index, p.ModifyIndex)
		}
	})
}

func TestB3B4_AWaitLastsItsTime(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("a", "1")
		for _, test := range []struct{ wait, least time.Duration }{
			{250 * time.Millisecond, 250 * time.Millisecond},
			{2 * time.Second, 2 * time.Second},
			{time.Hour, 10 * time.Minute}, // the most
			{0, 5 * time.Minute},          // the default
		} {
			const steps = 32
			step := test.least / steps
			r := await(h, h.blockedGet("a", p.ModifyIndex, test.wait), step)
			check(h.t, r.err)
			most := test.least + test.least/16 + 2*step
			if r.took < test.least || r.took > most {
				h.t.Fatalf("wait %v took %v", test.wait, r.took)
			}
			equal(h, "entry", brief(r.pairs[0]), brief(p))
			equal(h, "index", r.index, p.ModifyIndex)
		}
	})
}

func TestB6_OnlyAChangeOfTheKeyWakesItsReaders(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("foo/test", "1")
		waiting := h.blockedGet("foo/test", p.ModifyIndex, time.Hour)
		h.advance(time.Second)
		h.put("foo/test2", "x")
		h.put("foo", "x")
		h.put("foo/test", "1") // a no-op
		h.advance(time.Second)
		select {
		case r := <-waiting:
			h.t.Fatalf("woken: %+v", r)
		default:
		}
		id := h.session(nil)
		equal(h, "acquire", h.acquire("foo/test", id, "1"), true)
		r := receive(h, waiting)
		check(h.t, r.err)
		equal(h, "woken by the acquire", brief(r.pairs[0]), brief(h.get("foo/test")))
		waiting = h.blockedGet("foo/test", r.index, time.Hour)
		h.destroy(id)
		r = receive(h, waiting)
		check(h.t, r.err)
		equal(h, "woken by the end of the session", r.pairs[0].Session, "")
	})
}

func TestB7_ADeleteWakesReadersOfTheKey(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("a", "1")
		waiting := h.blockedGet("a", p.ModifyIndex, time.Hour)
		_, err := h.KV().Delete("a", nil)
		check(h.t, err)
		r := receive(h, waiting)
		check(h.t, r.err)
		if len(r.pairs) != 0 || r.index <= p.ModifyIndex {
			h.t.Fatalf("%+v after %s", r, brief(p))
		}
	})
}

func TestB8B9_ReadersOfAMissingKeyWaitForIt(t *testing.T) {
	each(t, func(h *harness) {
		index := h.missing("a")
		h.put("b", "1")
		waiting := h.blockedGet("a", index, time.Hour)
		h.advance(time.Second)
		for _, value := range []string{"2", "3", "4"} {
			h.put("b", value)
		}
		h.advance(time.Second)
		p := h.put("a", "1")
		r := receive(h, waiting)
		check(h.t, r.err)
		if len(r.pairs) != 1 || brief(r.pairs[0]) != brief(p) {
			h.t.Fatalf("%+v, not %s", r, brief(p))
		}
	})
}

func TestB10X14_ReadersOfAPrefixAreNotWokenByNeighbours(t *testing.T) {
	each(t, func(h *harness) {
		_, meta, err := h.KV().List("mk/bbb/", nil)
		check(h.t, err)
		waiting := h.blockedList("mk/bbb/", meta.LastIndex, time.Hour)
		h.advance(time.Second)
		h.put("mk/bbb0", "neighbour")
		h.put("mk/bbb", "neighbour")
		h.advance(time.Second)
		p := h.put("mk/bbb/1", "1")
		r := receive(h, waiting)
		check(h.t, r.err)
		if len(r.pairs) != 1 || brief(r.pairs[0]) != brief(p) || r.index != p.ModifyIndex {
			h.t.Fatalf("%+v, not %s", r, brief(p))
		}
		waiting = h.blockedList("mk/bbb/", r.index, time.Hour)
		_, err = h.KV().DeleteTree("mk/", nil)
		check(h.t, err)
		if r = receive(h, waiting); r.err != nil || len(r.pairs) != 0 || r.index <= p.ModifyIndex {
			h.t.Fatalf("%+v", r)
		}
	})
}

func TestB11_KeysBlockAsListDoes(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("p/a", "1")
		waiting := call(func() uint64 {
			keys, meta, err := h.KV().Keys("p/", "/", &api.QueryOptions{WaitIndex: p.ModifyIndex})
			if failed(h, err); err != nil || len(keys) != 1 {
				return 0
			}
			return meta.LastIndex
		})
		h.advance(time.Second)
		p = h.put("p/a", "2")
		equal(h, "index", receive(h, waiting), p.ModifyIndex)
	})
}

func TestB12_AllReadersOfAKeyAreWoken(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("a", "1")
		var waiting [20]<-chan reply
		for i := range waiting {
			waiting[i] = h.blockedGet("a", p.ModifyIndex, time.Hour)
		}
		h.advance(time.Second)
		p = h.put("a", "2")
		for _, replies := range waiting {
			r := receive(h, replies)
			check(h.t, r.err)
			equal(h, "entry", brief(r.pairs[0]), brief(p))
		}
	})
}

func TestB14_EveryConsistencyReadsTheSame(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("a", "1")
		for _, opts := range []*api.QueryOptions{
			nil, {AllowStale: true}, {RequireConsistent: true}, {UseCache: true},
		} {
			got, meta, err := h.KV().Get("a", opts)
			check(h.t, err)
			equal(h, "entry", brief(got), brief(p))
			if !meta.KnownLeader || meta.LastContact != 0 { // B15
				h.t.Fatalf("%+v", meta)
			}
		}
		_, _, err := h.KV().Get("a", &api.QueryOptions{AllowStale: true, RequireConsistent: true})
		h.refused(err, "400 (Cannot specify ?stale with ?consistent")
	})
}

func TestX15_AnIndexOfTheFutureIsAnsweredAtOnce(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("a", "1")
		r := receive(h, h.blockedGet("a", p.ModifyIndex+1_000_000, time.Hour))
		check(h.t, r.err)
		equal(h, "index", r.index, p.ModifyIndex)
	})
}

func TestBlocking_AQueryEndsWithItsContext(t *testing.T) {
	each(t, func(h *harness) {
		p := h.put("a", "1")
		ctx, cancel := context.WithCancel(h.t.Context())
		ended := call(func() error {
			opts := &api.QueryOptions{WaitIndex: p.ModifyIndex}
			_, _, err := h.KV().Get("a", opts.WithContext(ctx))
			return err
		})
		h.advance(time.Second)
		cancel()
		if err := receive(h, ended); !errors.Is(err, context.Canceled) {
			h.t.Fatal(err)
		}
	})
}
