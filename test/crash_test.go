package lockd_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd"
)

var crashRounds = flag.Int("crash.rounds", 3, "how often a writing process is killed")

// crashed is what is known of a file whose writing processes are killed.
type crashed struct {
	t     *testing.T
	path  string
	round int

	index  uint64                     // the highest that was ever reported
	fences map[string]uint64          // of each key, the highest
	holder map[string]lockd.SessionID // of each key, if its lock cannot be on its way out
	alone  map[string]uint64          // of each key, the highest fence of an exclusive grant
	shares map[lockd.Sequencer]bool   // that cannot be on their way out
	lives  map[lockd.SessionID]bool   // false: it is being ended, or has been
	gone   map[lockd.SessionID]bool   // the end is durable
	slots  map[lockd.SessionID]uint64 // fence of each slot that cannot be on its way out
	own    map[string]string          // what is in each writer's key, as the parent read it
	wrote  map[int]int                // the last write of each writer in this round
	counts map[uint64]bool            // indexes of the counts
	base   int                        // the count before this round
	found  int                        // shares in files that were acknowledged
	taken  int                        // shares that were taken over
}

// Ensure that when a process is killed while it writes, no acknowledged write is lost, no index
// used again, no lock held twice; that fences go on rising, and that the sessions of the process
// end, and no others.
func TestCrash_G1G2G4G8_Killed(t *testing.T) {
	if path := os.Getenv(crashPath); path != "" {
		writeUntilKilled(path)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := &crashed{
		t: t, path: filepath.Join(t.TempDir(), "lockd.db"),
		fences: make(map[string]uint64), own: make(map[string]string),
		alone: make(map[string]uint64),
	}
	for round := range *crashRounds {
		c.begin(round)
		lines := 1 + random.IntN(600)
		c.run(round, random.Uint64(), lines)
		c.check()
		if t.Failed() {
			t.Fatalf("in round %d, killed after %d lines", round, lines)
		}
	}
	t.Logf("%d shares were acknowledged and found, %d taken over", c.found, c.taken)
	if *crashRounds >= 20 && (c.found == 0 || c.taken == 0) {
		t.Error("no share was found, or taken over")
	}
}

// begin forgets what belongs to the round before only.
func (c *crashed) begin(round int) {
	c.round = round
	c.holder = make(map[string]lockd.SessionID)
	c.shares = make(map[lockd.Sequencer]bool)
	c.slots = make(map[lockd.SessionID]uint64)
	c.lives = make(map[lockd.SessionID]bool)
	c.gone = make(map[lockd.SessionID]bool)
	c.wrote = make(map[int]int)
	c.counts = make(map[uint64]bool)
}

// crashChild starts a process that writes to the file, and returns its reports.
func crashChild(t *testing.T, path string, round int, seed uint64) (*exec.Cmd, io.Reader) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^"+crashTest+"$")
	child.Env = append(os.Environ(), crashPath+"="+path,
		fmt.Sprintf("%s=%d", crashRound, round), fmt.Sprintf("%s=%d", crashSeed, seed))
	child.Stderr = os.Stderr
	reports, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = child.Process.Kill() // it is dead already, unless the test has failed
		_ = child.Wait()
	})
	return child, reports
}

// run has a process write, kills it after that many reports, and takes in all of them.
func (c *crashed) run(round int, seed uint64, lines int) {
	c.t.Helper()
	child, reports := crashChild(c.t, c.path, round, seed)
	scanner := bufio.NewScanner(reports)
	for n := 0; scanner.Scan(); {
		if n++; n == lines {
			if err := child.Process.Kill(); err != nil {
				c.t.Fatal(err)
			}
		}
		if err := c.take(strings.Fields(scanner.Text())); err != nil {
			c.t.Fatalf("%q: %v", scanner.Text(), err)
		}
	}
	if err := scanner.Err(); err != nil {
		c.t.Fatal(err)
	}
	if err := child.Wait(); err == nil {
		c.t.Fatal("the child ended by itself")
	}
}

// take takes in one report.
func (c *crashed) take(words []string) error {
	number := func(i int) uint64 {
		n, err := strconv.ParseUint(words[i], 10, 64)
		if err != nil {
			c.t.Fatalf("report %q: %v", words, err)
		}
		return n
	}
	id := func(i int) lockd.SessionID {
		id, err := lockd.ParseSessionID(words[i])
		if err != nil {
			c.t.Fatalf("report %q: %v", words, err)
		}
		return id
	}
	switch words[0] {
	case "wrote":
		c.wrote[int(number(1))] = int(number(2))
	case "counted":
		return c.counted(number(1))
	case "locked":
		return c.locked(words[1], number(2), id(3))
	case "releasing":
		delete(c.holder, words[1])
	case "shared":
		return c.shared(words[1])
	case "unsharing":
		return c.unsharing(words[1])
	case "took":
		return c.took(number(1), id(2))
	case "leaving":
		delete(c.slots, id(1))
	case "began":
		c.lives[id(1)] = true
	case "ending":
		c.lives[id(1)] = false
	case "ended":
		c.gone[id(1)] = true
	default:
		return errors.New("what the child says")
	}
	return nil
}

func (c *crashed) counted(index uint64) error {
	if c.counts[index] {
		return fmt.Errorf("index %d is used again", index)
	}
	c.counts[index] = true
	c.index = max(c.index, index)
	return nil
}

func (c *crashed) locked(key string, fence uint64, id lockd.SessionID) error {
	if other, held := c.holder[key]; held {
		return fmt.Errorf("session %v holds it", other)
	}
	if fence <= c.fences[key] {
		return fmt.Errorf("the fence before was %d", c.fences[key])
	}
	if err := c.sharedBy(key); err != nil {
		return err
	}
	c.holder[key], c.fences[key], c.alone[key] = id, fence, fence
	c.index = max(c.index, fence)
	return nil
}

func (c *crashed) took(fence uint64, id lockd.SessionID) error {
	if len(c.slots) == crashSlots {
		return fmt.Errorf("all slots are taken: %v", c.slots)
	}
	key := "pool/" + id.String()
	if fence <= c.fences[key] {
		return fmt.Errorf("the fence before was %d", c.fences[key])
	}
	c.slots[id], c.fences[key] = fence, fence
	c.index = max(c.index, fence)
	return nil
}

// check looks at what the killed process left: first at a copy, whose sessions are all kept, and
// then at what the next Open makes of it.
func (c *crashed) check() {
	c.t.Helper()
	left := c.look()
	now := clock.NewMock()
	now.Set(time.Now())
	db, err := lockd.Open(c.path, &lockd.Options{Clock: now})
	if err != nil {
		c.t.Fatal(err)
	}
	c.checkEnds(db, left)
	now.Add(crashDelay)
	c.checkGrants(db)
	c.checkPool(db)
	if err := db.Close(); err != nil {
		c.t.Fatal(err)
	}
}

// look checks that everything that was acknowledged is in the file, and returns the file's state.
func (c *crashed) look() *lockd.Snapshot {
	c.t.Helper()
	copied := c.path + ".copy"
	file, err := os.ReadFile(c.path)
	if err == nil {
		err = os.WriteFile(copied, file, 0o600)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if err := lockd.Verify(copied, nil); err != nil {
		c.t.Fatal(err)
	}
	db, err := lockd.Open(copied, &lockd.Options{Reopen: lockd.EndNone})
	if err != nil {
		c.t.Fatal(err)
	}
	left := db.Snapshot()
	c.checkShares(db, left)
	if err := db.Close(); err != nil {
		c.t.Fatal(err)
	}
	if left.Index() < c.index {
		c.t.Errorf("index %d is in the file, %d was acknowledged", left.Index(), c.index)
	}
	c.checkKeys(left)
	c.checkSlots(left)
	for id, lives := range c.lives {
		_, there := left.Session(id)
		if lives && !there || c.gone[id] && there {
			c.t.Errorf("session %v: in the file %t, lives %t", id, there, lives)
		}
	}
	for key, holder := range c.holder {
		if e, _ := left.Get(key); e.Session != holder || e.Fence != c.fences[key] {
			c.t.Errorf("lock %s: in the file %v, %d, was %v, %d", key, e.Session, e.Fence, holder,
				c.fences[key])
		}
	}
	return left
}

// checkKeys checks what the writers wrote to their own keys, and the count of all.
func (c *crashed) checkKeys(left *lockd.Snapshot) {
	c.t.Helper()
	for i := range crashWriters {
		key := fmt.Sprintf("own/%d", i)
		e, _ := left.Get(key)
		got := string(e.Value)
		last, wrote := c.wrote[i]
		before, after := c.own[key], crashState(c.round*crashOps)
		if wrote {
			before, after = crashState(last), crashState(last+1)
		}
		if got != before && got != after {
			c.t.Errorf("%s: got %q, want %q, or %q if it was on its way", key, got, before, after)
		}
		c.own[key] = got
	}
	e, _ := left.Get("count")
	n, _ := strconv.Atoi(string(e.Value))
	if n < c.base+len(c.counts) || n > c.base+len(c.counts)+crashWriters {
		c.t.Errorf("count: got %d, %d were there and %d acknowledged", n, c.base, len(c.counts))
	}
	c.base = n
}

// checkSlots checks that no more slots are held than there are, and that all reported ones are.
func (c *crashed) checkSlots(left *lockd.Snapshot) {
	c.t.Helper()
	e, ok := left.Get("pool/.lock")
	if !ok {
		return // nobody had one yet
	}
	var sem official
	if err := json.Unmarshal(e.Value, &sem); err != nil || sem.Limit != crashSlots {
		c.t.Errorf("semaphore: %s, %v", e.Value, err)
	}
	held := 0
	for key, e := range left.Prefix("pool/") {
		if id := strings.TrimPrefix(key, "pool/"); sem.Holders[id] && e.Session.String() == id {
			held++
		}
	}
	if held > crashSlots {
		c.t.Errorf("%d hold a slot: %s", held, e.Value)
	}
	for id, fence := range c.slots {
		e, _ := left.Get("pool/" + id.String())
		if e.Session != id || e.Fence != fence || !sem.Holders[id.String()] {
			c.t.Errorf("slot of %v, fence %d: in the file %+v", id, fence, e)
		}
	}
}

// checkEnds checks that each session of the killed process has ended, at an index of its own and
// with its delays, and that the others, and what they hold, are as they were.
func (c *crashed) checkEnds(db *lockd.DB, left *lockd.Snapshot) {
	c.t.Helper()
	now := db.Snapshot()
	if left.Index() < now.Index() {
		c.checkOrphans(db, left.Index(), now.Index())
	}
	for info := range left.Sessions() {
		_, lives := now.Session(info.ID)
		if lives != (info.Lifetime == lockd.Independent) {
			c.t.Errorf("session %+v: lives %t", info, lives)
		}
	}
	probe := c.session(db)
	for key, e := range left.Prefix("lock/") {
		if e.Session.IsZero() {
			continue
		}
		_, err := probe.TryLock(key, nil)
		refusal, _ := errors.AsType[*lockd.LockedError](err)
		info, _ := left.Session(e.Session)
		want := lockd.ObstacleHolder
		if info.Lifetime == lockd.BoundToProcess {
			want = lockd.ObstacleDelay
		}
		if refusal == nil || refusal.Obstacle != want {
			c.t.Errorf("lock %s: got %v, want obstacle %d", key, err, want)
		}
	}
	c.checkSharesEnd(db, left)
	for info := range now.Sessions() {
		if err := db.EndSession(info.ID); err != nil {
			c.t.Errorf("end what is left: %v", err)
		}
	}
}

// checkOrphans checks that every index above after, up to upto, is the end of a session that ended
// with its process.
func (c *crashed) checkOrphans(db *lockd.DB, after, upto uint64) {
	c.t.Helper()
	for event, err := range db.Watch(c.t.Context(), lockd.SessionsScope(), after) {
		if err != nil {
			c.t.Fatal(err)
		}
		if after++; event.Index != after || !errors.Is(event.Cause, lockd.ErrProcessGone) ||
			event.Session.Lifetime != lockd.BoundToProcess {
			c.t.Fatalf("event %+v, want the end of a session at %d", event, after)
		}
		if after == upto {
			return
		}
	}
	c.t.Fatalf("the watch has ended at %d, want all events up to %d", after, upto)
}

// checkGrants checks that indexes and fences go on above all reported ones.
func (c *crashed) checkGrants(db *lockd.DB) {
	c.t.Helper()
	s := c.session(db)
	keys := slices.Clone(shareKeys)
	for i := range crashKeys {
		keys = append(keys, crashKey(i))
	}
	for _, key := range keys {
		lock, err := s.TryLock(key, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		q := lock.Sequencer()
		if q.Fence <= c.fences[q.Key] || q.Fence <= c.index {
			c.t.Errorf("%v: after fence %d and index %d", q, c.fences[q.Key], c.index)
		}
		c.fences[q.Key], c.index = q.Fence, q.Fence
		if err := lock.Unlock(); err != nil {
			c.t.Fatal(err)
		}
	}
}

// checkPool checks that all slots can be taken when their holders are gone.
func (c *crashed) checkPool(db *lockd.DB) {
	c.t.Helper()
	for range crashSlots {
		s := c.session(db)
		slot, err := s.TryAcquire("pool", crashSlots)
		if err != nil {
			c.t.Fatal(err)
		}
		if q := slot.Sequencer(); q.Fence <= c.index {
			c.t.Errorf("%v: after index %d", q, c.index)
		}
		c.index = slot.Sequencer().Fence
	}
	_, err := c.session(db).TryAcquire("pool", crashSlots)
	if refusal, _ := errors.AsType[*lockd.LockedError](err); refusal == nil {
		c.t.Errorf("one slot more: got %v", err)
	}
}

func (c *crashed) session(db *lockd.DB) *lockd.Session {
	c.t.Helper()
	s, err := db.NewSession(nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

// Ensure that a file that another process has open is refused when OpenTimeout has passed.
func TestG13_FileInUseByAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lockd.db")
	_, reports := crashChild(t, path, 1, 1)
	if line, err := bufio.NewReader(reports).ReadString('\n'); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	db, err := lockd.Open(path, &lockd.Options{OpenTimeout: time.Millisecond})
	if !errors.Is(err, lockd.ErrInUse) || db != nil {
		t.Fatalf("open: got %v, %v", db, err)
	}
}
