package histories_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockd/lockd"
)

var (
	many    = flag.Int("histories", 300, "how many histories there are")
	length  = flag.Int("histories.ops", 200, "how many operations each has")
	endless = flag.Duration("histories.for", 0, "how long there are histories, however many")
	first   = flag.Uint64("histories.seed", 0, "the seed of the first history; 0: the time")
	folder  = flag.String("histories.dir", "", "where the files are; empty: a temporary folder")
)

// atOnce is how many histories run at a time. They wait most of the time.
const atOnce = 4

// patience is how long the checker may take for one key of one history. Many unknown outcomes allow
// many orders, and the machine may have other things to do.
const patience = 5 * time.Minute

// Ensure that for whatever answers clients of all kinds get at the same time, there is an order in
// which they are right, and that the order of service, the fences and the events are as promised.
// The seed decides what the clients do, but not how their calls interleave.
func TestHistories(t *testing.T) {
	seed := *first
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	dir := *folder
	if dir == "" {
		dir = t.TempDir()
	}
	began, total := time.Now(), &totals{counts: map[string]int{}}
	var next atomic.Int64
	more := func(n int64) bool {
		if t.Failed() {
			return false
		}
		if *endless > 0 {
			return time.Since(began) < *endless
		}
		return n < int64(*many)
	}
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for n := next.Add(1) - 1; more(n); n = next.Add(1) - 1 {
				total.run(t, dir, seed+uint64(n))
			}
		})
	}
	all.Wait()
	t.Logf("seed %d: %d histories in %v: %v", seed, total.histories, time.Since(began),
		total.counts)
	if *endless == 0 && !t.Failed() && total.histories != *many {
		t.Errorf("%d histories, want %d", total.histories, *many)
	}
	total.neverCounted(t)
}

// totals counts what was done in all histories.
type totals struct {
	mu        sync.Mutex
	histories int
	counts    map[string]int
}

// neverCounted fails the test if something that the histories should try was never tried.
func (s *totals) neverCounted(t *testing.T) {
	if s.histories < 100 {
		return
	}
	for _, what := range []string{
		"operations", "unknown", "crashes", "commits failed in the file", "reopens", "grants",
		"waiters compared", "gave up", "expired", "ends", "events", "replays", "over HTTP",
		"refused", "shares", "downgrades", "shares over HTTP", "refused over HTTP for a share",
		"refused for a delay", "reads", "ends of holds told first", "commits failed", "closed",
	} {
		if s.counts[what] == 0 {
			t.Errorf("never counted: %s", what)
		}
	}
}

// run is one history: every other one is on a file.
func (s *totals) run(t *testing.T, dir string, seed uint64) {
	path := ""
	if seed%2 == 0 {
		path = filepath.Join(dir, fmt.Sprint(seed))
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Error(err)
			return
		}
		defer os.RemoveAll(path)
	}
	w := newWorld(path, seed)
	if err := w.play(*length); err != nil {
		t.Errorf("seed %d: %v", seed, err)
		return
	}
	wrong := w.judge()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.histories++
	for what, n := range w.counts {
		s.counts[what] += n
	}
	if len(wrong) > 0 {
		t.Errorf("seed %d: go test -run TestHistories -histories=1 -histories.seed=%d\n%s", seed,
			seed, strings.Join(wrong[:min(len(wrong), 20)], "\n"))
	}
}

// play lets the clients do the given number of operations in all.
func (w *world) play(operations int) error {
	path := ""
	if w.dir != "" {
		path = filepath.Join(w.dir, "0.db")
	}
	if err := w.open(path); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	var clients, observers sync.WaitGroup
	observers.Go(func() { w.observe(ctx) })
	const kinds = 8
	var left atomic.Int64
	left.Store(kinds)
	for i := range kinds {
		each := operations / kinds
		clients.Go(func() {
			defer left.Add(-1)
			switch c := newCaller(w, i); {
			case i < 4:
				(&library{caller: c}).run(each)
			default:
				(&remote{caller: c, loopback: i%2 == 0}).run(each)
			}
		})
	}
	err := w.disturb(operations, &left)
	clients.Wait()
	stop()
	observers.Wait()
	e := w.current.Load()
	e.finish()
	close(e.over)
	return err
}

// disturb closes the database, or has it crash, at some places of the history, and lets watches
// begin.
func (w *world) disturb(operations int, left *atomic.Int64) error {
	chance := rand.New(rand.NewPCG(w.seed, 99))
	until := func(share float64) bool {
		for w.asked.Load() < int64(share*float64(operations)) {
			if left.Load() == 0 {
				return false
			}
			time.Sleep(50 * time.Microsecond)
		}
		return true
	}
	for i := range 3 {
		if !until(float64(i)/3 + chance.Float64()/4) {
			return nil
		}
		if e := w.current.Load(); e.db.Snapshot().Index() > e.floor {
			e.replay(e.floor + chance.Uint64N(e.db.Snapshot().Index()-e.floor+1))
			w.count("replays")
		}
		if w.dir == "" || i == 0 && chance.IntN(2) == 0 {
			continue
		}
		fault := []int32{noFault, crash, crash, failing}[chance.IntN(4)]
		w.count([]string{"reopens", "crashes", "commits failed in the file"}[fault])
		if err := w.reopen(fault); err != nil {
			return err
		}
	}
	return nil
}

// judge returns what is wrong with a history that is over.
func (w *world) judge() []string {
	ends, wrong := w.ends()
	wrong = append(wrong, w.found...)
	records := append(w.records, ends...)
	var operations []porcupine.Operation
	for i, r := range records {
		if r.back == 0 {
			r.back = math.MaxInt64 - int64(len(records)-i)
			if r.era != nil && r.era.number < len(w.eras)-1 {
				r.back = w.eras[r.era.number+1].opened
			}
		}
		if r.back < r.call {
			continue // it asked a database that had been replaced
		}
		operations = append(operations, porcupine.Operation{
			ClientId: r.client + 1, Input: r.input, Output: r.output, Call: r.call, Return: r.back,
		})
	}
	for _, part := range keyModel.Partition(operations) {
		wrong = append(wrong, judgeKey(part)...)
	}
	ended := map[string]int64{}
	for _, r := range ends {
		ended[r.session] = r.back
	}
	grants := w.grants()
	pairs, overtaken := checkQueues(grants, w.looks)
	wrong = append(append(wrong, overtaken...), checkFences(grants)...)
	wrong = append(wrong, checkDead(grants, ended)...)
	for _, e := range w.eras {
		wrong = append(wrong, e.judge(w.records)...)
		w.counts["events"] += len(e.events)
	}
	w.counts["operations"] += len(w.records)
	for _, g := range grants {
		if g.fence > 0 {
			w.counts["grants"]++
		}
		if g.fence > 0 && g.shared {
			w.counts["shares"]++
		}
		if g.fence > 0 && g.shared && g.remote {
			w.counts["shares over HTTP"]++
		}
	}
	w.counts["waiters compared"] += pairs
	w.counts["ends"] += len(ended)
	for _, r := range w.records {
		switch {
		case r.kind == downgrade && r.output.outcome == done:
			w.counts["downgrades"]++
		case r.kind == giveUp:
			w.counts["gave up"]++
		case r.output.outcome == unknown:
			w.counts["unknown"]++
		case r.output.outcome == refused:
			w.counts["refused"]++
		}
		if r.quiet || r.kind == read {
			w.counts["over HTTP"]++
		}
		switch {
		case r.why == shared:
			w.counts["refused over HTTP for a share"]++
		case r.why == delayed:
			w.counts["refused for a delay"]++
		case r.kind == get || r.kind == read:
			w.counts["reads"]++
		}
	}
	return wrong
}

// judgeKey returns what the checker finds wrong with one key.
func judgeKey(part []porcupine.Operation) []string {
	model := keyModel.ToModel()
	model.Partition = nil
	result, info := porcupine.CheckOperationsVerbose(model, part, patience)
	if result == porcupine.Ok {
		return nil
	}
	key := part[0].Input.(input).key
	what := "the answers are in no order"
	if result == porcupine.Unknown {
		what = fmt.Sprintf("the checker has found no order in %v", patience)
	}
	return []string{fmt.Sprintf("%q: %s: %s", key, what, stuck(part, info))}
}

// stuck shows how far the checker came: its longest order, and the possible next operations, none
// of which fits.
func stuck(part []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var longest []porcupine.Operation
	for _, list := range info.PartialLinearizationsOperations() {
		for _, l := range list {
			if len(l) > len(longest) {
				longest = l
			}
		}
	}
	var text strings.Builder
	type id struct {
		call  int64
		input any
	}
	used := map[id]bool{}
	states := []state{{}}
	for _, o := range longest {
		used[id{o.Call, o.Input}] = true
		var next []state
		for _, s := range states {
			next = append(next, step(s, o.Input.(input), o.Output.(output))...)
		}
		states = next
		fmt.Fprintf(&text, "\n  %d-%d %+v -> %+v", o.Call, o.Return, o.Input, o.Output)
	}
	fmt.Fprintf(&text, "\n states %+v", states[:min(len(states), 4)])
	earliest := int64(math.MaxInt64)
	for _, o := range part {
		if !used[id{o.Call, o.Input}] {
			earliest = min(earliest, o.Return)
		}
	}
	for _, o := range part {
		if !used[id{o.Call, o.Input}] && o.Call < earliest {
			fmt.Fprintf(&text, "\n  ? %d-%d %+v -> %+v", o.Call, o.Return, o.Input, o.Output)
		}
	}
	return text.String()
}

// grants returns the grants that callers were told of, and the calls that waited in vain. A lock
// that was taken over is not a grant, nor is a repeat over HTTP.
func (w *world) grants() (list []granted) {
	had := map[string]bool{}
	for _, r := range w.records {
		switch {
		case r.kind != grant && r.kind != try && r.kind != acquire:
			continue
		case r.output.outcome == unknown && r.kind == acquire:
			had[r.session+r.key] = true
		}
		fence := r.entry.fence
		switch {
		case r.output.outcome == unknown && r.kind == grant:
			fence = 0
		case r.output.outcome != done || fence <= r.era.floor:
			continue
		}
		if r.kind == acquire { // a call that was given up may have been granted it before
			id := fmt.Sprint(r.session, r.key, r.entry.fence)
			if had[r.session+r.key] || had[id] {
				continue
			}
			had[id] = true
		}
		list = append(list, granted{
			r.key, r.session, fence, r.call, r.back, r.era.number, r.shared, r.several,
			w.held(r), r.kind == acquire,
		})
	}
	return list
}

// held reports whether the session may have held a lock by another call during the call. That lock
// may be a share of the same key, which others may wait for too.
func (w *world) held(r *record) bool {
	for _, other := range w.records {
		switch other.kind {
		case grant, try, acquire:
		default:
			continue
		}
		if other != r && other.session == r.session && other.call < r.back &&
			other.output.outcome != refused && !w.released(other, r.call) {
			return true
		}
	}
	return false
}

// released reports whether the grant, and its release too, were told of before that time.
func (w *world) released(r *record, before int64) bool {
	for _, end := range w.records {
		if end.kind == unlock && end.key == r.key && end.session == r.session &&
			r.output.outcome == done && end.fence == r.entry.fence &&
			end.output.outcome == done && end.back < before {
			return true
		}
	}
	return false
}

// judge returns what is wrong with the events of an era.
func (e *era) judge(records []*record) []string {
	keys := slices.DeleteFunc(slices.Clone(e.events), func(event seen) bool {
		return event.Kind == lockd.ShareGranted || event.Kind == lockd.ShareEnded
	})
	wrong := checkChain(e.before, keys)
	wrong = append(wrong, checkEnds(e.before, keys, e.ends)...)
	for i, replay := range e.replays {
		wrong = append(wrong, checkReplay(e.events, replay, e.replayedFrom[i])...)
	}
	var own []*record
	for _, r := range records {
		if r.era == e {
			own = append(own, r)
		}
	}
	wrong = append(wrong, checkSeen(e.floor, keys, own)...)
	wrong = append(wrong, checkFinal(e.before, keys, e.db.Snapshot())...)
	for _, event := range e.ends {
		if event.Cause != nil && strings.Contains(event.Cause.Error(), "expired") {
			e.w.counts["expired"]++
		}
	}
	return wrong
}
