package lockd_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"
	"pgregory.net/rapid"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/store"
)

var (
	simulationOps   = flag.Int("simulation.ops", 4000, "operations of the simulation")
	simulationSteps = flag.Int("simulation.steps", 100,
		"operations of one run on average, those within others not counted")
	simulationDir = flag.String("simulation.dir", "",
		"where its files are: a folder in memory is fast; empty: a temporary one")
)

// Ensure that a database does what the model does, when the power is cut, or the process killed, in
// the middle of its commits, again and again, and its timers are late: whatever was answered is in
// the file, whatever was not is there whole or not at all, no index and no fence is used again,
// lock-delays and Independent sessions go on, and the file verifies. Syncs fail, too, while the
// process goes on. All chance comes from rapid's seed.
func TestSimulation(t *testing.T) {
	dir := *simulationDir
	if dir == "" {
		dir = t.TempDir()
	}
	want, runs := *simulationOps, "20" // in a round
	if testing.Short() || raced {
		want /= 10
	}
	if raced {
		runs = "5"
	}
	seed := uint64(time.Now().UnixNano())
	if given := flag.Lookup("rapid.seed").Value.String(); given != "0" {
		seed, _ = strconv.ParseUint(given, 10, 64)
	}
	setFlag(t, "rapid.checks", runs)
	setFlag(t, "rapid.steps", strconv.Itoa(*simulationSteps))
	began, counts := time.Now(), map[string]int{}
	var done atomic.Int64 // operations that have no others within
	unseen := func() (never []string) {
		for _, what := range []string{
			"crashes", "cut in a record", "cut in pages", "cut before a meta page", "killed",
			"was lost", "was there", "late", "done late", "sync failed",
		} {
			if counts[what] == 0 && want >= 4000 {
				never = append(never, what)
			}
		}
		return never
	}
	// It goes on until it has seen what is rare, for ten times as many operations at most.
	more := func() bool {
		n := int(done.Load()) + counts["operations"]
		return n < want || n < 10*want && unseen() != nil
	}
	for round := uint64(0); more(); round++ {
		before := done.Load()
		setFlag(t, "rapid.seed", strconv.FormatUint(seed+round<<32, 10))
		rapid.Check(t, func(t *rapid.T) {
			rapid.SyncTest(t, func(t *rapid.T) {
				counts["runs"]++
				w := newTwinOn(t, dir, counts)
				w.disk = newPowerDisk(w.path, rapid.Uint64().Draw(t, "chance"))
				w.open()
				w.run(&done)
			})
		})
		if done.Load() == before {
			t.Fatal("no operations in a whole round")
		}
		if round%50 == 49 {
			t.Logf("%v: %d and %v", time.Since(began), done.Load(), counts)
		}
	}
	t.Logf("seed %d: %d operations, and those within them, in %v: %v", seed, done.Load(),
		time.Since(began), counts)
	for _, what := range unseen() {
		t.Errorf("it never happened: %s", what)
	}
}

var (
	powerKinds = append(append(slices.Repeat([]string{"cut"}, 25), "late", "late", "late"),
		fileKinds...)
	drawPower = rapid.SampledFrom(powerKinds)

	// What is done while a power cut is to come, or while timers are late.
	powerParts = map[string]*rapid.Generator[string]{
		"cut":  rapid.SampledFrom(append([]string{"put", "lock", "unlock", "put"}, fileKinds...)),
		"late": rapid.SampledFrom(anyKinds),
	}
)

// lateClock is a mock whose timers are late: as long as it stands still, what time it is does not
// depend on them.
type lateClock struct {
	*clock.Mock
	still atomic.Pointer[time.Time]
}

func (c *lateClock) Now() time.Time {
	if still := c.still.Load(); still != nil {
		return *still
	}
	return c.Mock.Now()
}

// AfterFunc arms the mock's timer for the instant that is meant.
func (c *lateClock) AfterFunc(d time.Duration, f func()) *clock.Timer {
	return c.Mock.AfterFunc(d+c.Now().Sub(c.Mock.Now()), f)
}

func (c *lateClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *lateClock) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// doLate lets the clock jump without a timer, does something, and then lets the timers come.
func (w *twin) doLate(o op) error {
	step := time.Duration(1+o.a) * time.Second
	if at, ok := w.m.upcoming(); ok && o.c%2 == 0 {
		step = at.Sub(w.m.now)
	}
	now := w.m.now.Add(step)
	w.late.still.Store(&now)
	w.m.now = now
	w.m.counts["late"]++
	for _, part := range o.of {
		if part.kind == "clock" {
			continue // it stands still
		}
		if err := w.doStep(part); err != nil {
			return fmt.Errorf("while timers are late: %w", err)
		}
	}
	index := w.m.index
	w.clock.Set(now)
	w.late.still.Store(nil)
	synctest.Wait()
	w.m.advance(now)
	if w.m.index > index {
		w.m.counts["done late"]++
	}
	return nil
}

// doStep does an operation, and compares.
func (w *twin) doStep(o op) error {
	w.m.counts["operations"]++
	err := w.do(o)
	synctest.Wait()
	w.m.rouse()
	return errors.Join(err, w.compare())
}

// savedModel is a model as it was.
type savedModel struct {
	model
	state modelState
}

func (m *model) save() savedModel { return savedModel{*m, m.clone()} }

// restore puts it back as far as a file does: reopen has to follow.
func (m *model) restore(s savedModel) {
	now := m.now
	*m = s.model
	m.modelState, m.now = s.state, now
}

// doCut cuts the power, or kills the process, when one of the next syncs is under way, and opens
// what that has left.
func (w *twin) doCut(o op) error {
	if err := w.disk.arm(1+o.c%4, func() uint64 { return w.db.Stats().Index }); err != nil {
		return err
	}
	for _, part := range o.of {
		before, saw := w.m.save(), w.referee.clone()
		if err := w.doStep(part); err != nil {
			return err
		}
		if left := w.disk.taken(); left != nil {
			return w.afterCut(left, before, saw)
		}
	}
	w.disk.disarm()
	return nil
}

// afterCut goes on with what a cut has left. The database has gone on meanwhile, and so has the
// model: what was not in the file is taken back.
func (w *twin) afterCut(left *cutContent, before savedModel, saw referee) error {
	w.m.counts[left.how]++
	if left.killed {
		w.m.counts["killed"]++
	}
	w.files++
	path := filepath.Join(filepath.Dir(w.path), fmt.Sprintf("%d.db", w.files))
	if err := os.WriteFile(path, left.content, 0o600); err != nil {
		return err
	}
	index, err := indexOf(path)
	if err != nil {
		return fmt.Errorf("%s: %w", left.how, err)
	}
	switch {
	case index < left.told:
		return fmt.Errorf("%s: the file has index %d, and %d was told", left.how, index, left.told)
	case slices.Contains(left.failed, index):
		// G11: the model knows no such state. After an Open another commit has that index, and
		// which of them it is is not told.
		w.m.counts["failed, may be there"]++
		return os.Remove(path)
	case index == w.m.published:
		w.m.counts["was there"]++
	case index == before.published:
		w.m.counts["was lost"]++
		w.m.restore(before)
		w.referee = saw
	case index > w.m.published:
		return fmt.Errorf("%s: the file has index %d, and the newest is %d", left.how, index,
			w.m.published)
	default:
		w.m.counts["cut between two commits"]++ // of one operation: the model knows no such state
		return os.Remove(path)
	}
	old := w.path
	w.path, w.disk = path, w.disk.next(path, left.synced)
	w.m.counts["crashes"]++
	return w.replace(old)
}

// indexOf verifies such a file, and returns its last index.
func indexOf(path string) (uint64, error) {
	var backup bytes.Buffer
	if err := lockd.BackupFile(path, &backup, nil); err != nil {
		return 0, err
	}
	read, err := store.ReadBackup(&backup)
	if err != nil {
		return 0, err
	}
	return read.Index, nil
}
