package lockd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/lockd/lockd"
)

// What a child process is told by its environment.
const (
	crashPath  = "LOCKD_TEST_CRASH_PATH"
	crashRound = "LOCKD_TEST_CRASH_ROUND"
	crashSeed  = "LOCKD_TEST_CRASH_SEED"
)

// crashTest is the test that the child process runs. The test finds out that it is in a child.
const crashTest = "TestCrash_G1G2G4G8_Killed"

const (
	crashWriters = 8
	crashKeys    = 3 // of locks, for all writers
	crashSlots   = 2 // of a semaphore, for all writers
	crashOps     = 1_000_000
	crashDelay   = time.Millisecond
)

// report tells the parent of one thing that has happened, before anything else happens in this
// goroutine. What was written stays in the pipe when the process is killed.
func report(format string, args ...any) {
	line := fmt.Sprintf(format, args...) + "\n"
	if _, err := os.Stdout.WriteString(line); err != nil {
		os.Exit(2) // the parent does not read any more
	}
}

// writeUntilKilled is what the child process does. It never returns.
func writeUntilKilled(path string) {
	round, _ := strconv.Atoi(os.Getenv(crashRound))
	seed, _ := strconv.ParseUint(os.Getenv(crashSeed), 10, 64)
	// A kill is the same for both policies: the system has what was written to the file.
	policy := lockd.SyncPolicy(round % 2)
	db, err := lockd.Open(path, &lockd.Options{Sync: policy, OpenTimeout: time.Minute})
	if err != nil {
		report("error open: %v", err)
		os.Exit(1)
	}
	for i := range crashWriters {
		w := &crashWriter{
			db: db, name: i, next: round * crashOps,
			random: rand.New(rand.NewPCG(seed, uint64(i))),
		}
		go func() {
			for {
				if err := w.step(); err != nil {
					report("error writer %d: %v", i, err)
				}
			}
		}()
	}
	select {}
}

// crashWriter does one thing after the other, and reports each.
type crashWriter struct {
	db      *lockd.DB
	name    int
	next    int
	random  *rand.Rand
	session *lockd.Session
	keeper  *lockd.Keeper // of the session, or nil
	kept    []*lockd.Lock // that the session shares
}

func (w *crashWriter) step() error {
	switch w.random.IntN(7) {
	case 0:
		return w.count()
	case 1, 2:
		return w.lock()
	case 3:
		return w.slot()
	case 4, 5:
		return w.share()
	}
	return w.write()
}

// crashState is the value of a writer's own key after its n-th write; empty means deleted.
func crashState(n int) string {
	if n%5 == 4 {
		return ""
	}
	return strconv.Itoa(n)
}

func (w *crashWriter) write() error {
	key := fmt.Sprintf("own/%d", w.name)
	var err error
	if value := crashState(w.next); value == "" {
		_, err = w.db.Delete(key)
	} else {
		_, err = w.db.Put(key, []byte(value), nil)
	}
	if err == nil {
		report("wrote %d %d", w.name, w.next)
		w.next++
	}
	return err
}

// count adds one to the counter that all writers share.
func (w *crashWriter) count() error {
	var index uint64
	err := w.db.Update(func(tx *lockd.Txn) error {
		index = tx.Index()
		e, _ := tx.Get("count")
		n, _ := strconv.Atoi(string(e.Value))
		_, err := tx.Put("count", []byte(strconv.Itoa(n+1)), nil)
		return err
	})
	if err == nil {
		report("counted %d", index)
	}
	return err
}

// lock takes one lock, or two, and lets go of them in one way or another.
func (w *crashWriter) lock() error {
	s, err := w.begin()
	if err != nil {
		return err
	}
	ctx := context.Background()
	first := w.random.IntN(crashKeys)
	keys := []string{crashKey(first)}
	if w.random.IntN(3) == 0 {
		keys = append(keys, crashKey((first+1)%crashKeys))
	}
	if len(keys) == 1 && w.random.IntN(3) == 0 {
		return w.lead(s, keys[0])
	}
	locks, err := s.LockAll(ctx, keys, nil)
	if err != nil {
		return err
	}
	for _, lock := range locks {
		report("locked %s %d %v", lock.Key(), lock.Sequencer().Fence, s.ID())
	}
	if w.random.IntN(4) > 0 {
		for _, lock := range locks {
			report("releasing %s", lock.Key())
			err = errors.Join(err, lock.Unlock())
		}
		return err
	}
	for _, lock := range locks {
		report("releasing %s", lock.Key())
	}
	return w.end()
}

// slot takes a slot, and lets go of it in one way or another.
func (w *crashWriter) slot() error {
	s, err := w.begin()
	if err != nil {
		return err
	}
	slot, err := s.Acquire(context.Background(), "pool", crashSlots)
	if err != nil {
		return err
	}
	report("took %d %v", slot.Sequencer().Fence, s.ID())
	report("leaving %v", s.ID())
	if w.random.IntN(4) > 0 {
		return slot.Release()
	}
	return w.end()
}

// lead is elected, proclaims and resigns.
func (w *crashWriter) lead(s *lockd.Session, key string) error {
	leader, err := s.Campaign(context.Background(), key, nil)
	if err != nil {
		return err
	}
	report("locked %s %d %v", key, leader.Sequencer().Fence, s.ID())
	err = leader.Proclaim([]byte(s.ID().String()))
	report("releasing %s", key)
	return errors.Join(err, leader.Resign())
}

func crashKey(i int) string { return fmt.Sprintf("lock/%d", i) }

// begin returns the session, and makes one if there is none.
func (w *crashWriter) begin() (*lockd.Session, error) {
	if w.session != nil {
		return w.session, nil
	}
	lifetime := lockd.Lifetime(w.random.IntN(2))
	opts := &lockd.SessionOptions{Lifetime: lifetime, LockDelay: crashDelay}
	var s *lockd.Session
	var err error
	if w.random.IntN(2) == 0 {
		s, err = w.db.NewSession(opts)
	} else {
		opts.TTL = time.Hour // without one a keeper takes no Independent session
		if w.keeper, err = w.db.NewKeeper(opts); err == nil {
			s, err = w.keeper.Session(context.Background())
		}
	}
	if err == nil {
		w.session = s
		report("began %v", s.ID())
	}
	return s, err
}

func (w *crashWriter) end() error {
	s := w.session
	w.session = nil
	w.forsake()
	report("ending %v", s.ID())
	var err error
	if w.random.IntN(2) == 0 {
		err = s.Close()
	} else {
		err = w.db.EndSession(s.ID())
	}
	if w.keeper != nil {
		err = errors.Join(err, w.keeper.Close())
		w.keeper = nil
	}
	if err == nil {
		report("ended %v", s.ID())
	}
	return err
}
