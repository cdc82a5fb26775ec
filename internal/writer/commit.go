package writer

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// committer lets one call commit at a time, and has what commits share.
type committer struct {
	// token is taken by the call that commits, before it locks the mutex. It is a channel, so that
	// a call that waits for it counts as durably blocked in a synctest bubble.
	token chan struct{}
	pace  pace           // protected by token
	steps sync.WaitGroup // of a checkpoint, until their errors are told; protected by token
}

// Commits says what writing to the file has cost.
type Commits struct {
	Count   uint64        // commits that succeeded
	Failed  uint64        // commits that failed
	Writers uint64        // calls that waited for the commits that succeeded
	Total   time.Duration // how long the commits that succeeded took together
	Last    time.Duration // how long the last of them took
	Max     time.Duration // how long the longest of them took
}

func (c *Commits) count(callers int64, took time.Duration, err error) {
	if err != nil {
		c.Failed++
		return
	}
	c.Count++
	c.Writers += uint64(callers)
	c.Total += took
	c.Last, c.Max = took, max(c.Max, took)
}

// Commits returns the counts. The caller holds the mutex.
func (w *Writer) Commits() Commits { return w.commits }

// commit commits the open batch, which the caller leads.
func (w *Writer) commit(b *batch) {
	defer b.leave()
	end := w.hold()
	w.committer.token <- struct{}{}
	end()
	if b.decided { // b was dropped with the batch before: Close need not wait for b's leader
		<-w.committer.token
		return
	}
	w.tidyFile() // while other calls join b: see BenchmarkCommit_Crowd
	pace := &w.committer.pace
	pace.gather(b)

	w.mutex.Lock()
	taken := w.Engine.Take()
	w.flying, w.open = b, newBatch()
	callers := b.callers.Load()
	w.unlock()

	began := w.Time()
	err := w.Engine.Write(taken)
	took := max(0, w.Time().Sub(began))
	var unclear error
	if err != nil {
		unclear = w.lookInFile()
	}

	var follower *batch
	w.mutex.Lock()
	w.flying = nil
	w.commits.count(callers, took, err)
	w.Host.Committed(callers, took, err)
	if err == nil {
		w.Host.Notify(w.Engine.Publish(taken))
		w.Engine.Reuse(taken)
		b.decided = true
		if w.retry.backoff > 0 {
			w.retry = retry{}
			w.Arm()
		}
	} else {
		follower = w.drop(b, w.Engine.Drop(taken), err, unclear)
	}
	pace.last, pace.expected = b, callers
	if w.open.led {
		pace.expected += w.open.callers.Load()
	}
	w.unlock()
	w.endCommit(b)
	close(b.done)
	if follower != nil {
		close(follower.done)
	}
}

// endCommit lets other calls commit. If the batch is durable and has left much work in the file, a
// goroutine does that work first, while the other calls decide what they will commit.
func (w *Writer) endCommit(b *batch) {
	if b.err != nil || !w.Engine.Rows().Untidy() {
		<-w.committer.token
		return
	}
	go func() {
		w.tidyFile()
		<-w.committer.token
	}()
}

// tidyFile does the work in the file that the last batch has left. A step of a checkpoint runs on
// its own goroutine beside the next commits, which wait for it only while it writes: see
// BenchmarkCommit_Crowd and BenchmarkExpiry_File. A step that fails is tried again, unless it is
// not known what the step has left in the file: then the next commit fails.
func (w *Writer) tidyFile() {
	step := w.Engine.Rows().Tidy()
	if step == nil {
		return
	}
	w.committer.steps.Go(func() {
		runtime.Gosched() // the calls that were woken meanwhile come first
		if err := step(); err != nil {
			w.Host.StepFailed(err)
		}
	})
}

// CloseFile closes the file when nothing writes to it any more.
func (w *Writer) CloseFile() error {
	end := w.hold()
	w.committer.token <- struct{}{}
	end()
	defer func() { <-w.committer.token }()
	err := w.Engine.Rows().Close()
	w.committer.steps.Wait()
	return err
}

// The backoff before what is due is tried again.
const (
	FirstBackoff = time.Second // FirstBackoff follows the first failure.
	LastBackoff  = time.Minute // LastBackoff is the longest.
)

// retry says when what is due is tried again.
type retry struct {
	at      time.Time     // valid if backoff is not 0
	backoff time.Duration // before the last retry; 0: none was set since a commit succeeded
	waits   bool          // the last retry has not begun
}

// drop ends a batch that could not be committed, and the open batch, which was decided on it. It
// returns the open batch. If unclear is not nil, it is not known what the file has, and the
// database has failed.
func (w *Writer) drop(b *batch, again bool, cause, unclear error) *batch {
	follower := w.open
	w.open = newBatch() // under the same lock: no call may join a batch that is lost
	err := fmt.Errorf("%w: %w", w.Commit, cause)
	for _, dropped := range []*batch{b, follower} {
		dropped.decided, dropped.err = true, err
	}
	switch {
	case unclear != nil:
		if !errors.Is(cause, unclear) { // they are the same if the file is gone
			cause = fmt.Errorf("%w, and then %w", cause, unclear)
		}
		w.fail(fmt.Errorf("%w: %w", w.Failure, cause))
	case again:
		w.retry.backoff = min(max(FirstBackoff, 2*w.retry.backoff), LastBackoff)
		w.instant = w.Time()
		w.retry.at, w.retry.waits = w.instant.Add(w.retry.backoff), true
		w.arm()
	default:
		w.rouse() // the first attempt of the database's own
	}
	return follower
}

// fail ends all writing: it is not known what the file has.
func (w *Writer) fail(err error) {
	if w.Refused() == nil {
		w.refusal.Store(&err)
	}
	w.alarm.Stop()
	w.Host.Failed(err)
}

// lookInFile returns an error unless the file has exactly what was published: a commit may have
// failed although it is in the file.
func (w *Writer) lookInFile() error {
	index, err := w.Engine.Rows().FileIndex()
	if err != nil {
		return err
	}
	if published := w.Engine.Rows().Published(); index != published {
		return fmt.Errorf("index %d is in the file, and %d was published", index, published)
	}
	return nil
}

// pace decides when a batch is closed. Callers that were answered by the last commit often write
// again at once, and would just miss the next commit. So the next commit begins when each of these
// callers has had its turn to run, which takes a few microseconds for each, and no timer. Without
// that wait, if many writers write again and again, each commit has half of them, and the other
// half joins the next batch meanwhile (BenchmarkCommit_Crowd, with 64 and 512 writers).
type pace struct {
	off      bool   // a commit waits for no call: see hook.Clock
	last     *batch // the last one that was decided
	expected int64  // callers of the next batch, if all come again
	skip     int    // batches that wait for no call
	penalty  int    // batches to skip next time
}

const (
	maxPenalty = 4096

	perCaller       = time.Microsecond // spent at most on calls that run, but have not joined
	yieldsPerCaller = 8
)

// gather waits until all callers of the last batch run again, and then briefly for them to join b.
func (p *pace) gather(b *batch) {
	switch {
	case p.off || p.last == nil:
		return
	case p.skip > 0:
		p.skip--
		return
	}
	select {
	case <-p.last.empty: // as when a lone writer comes again
		return
	default:
	}
	began := time.Now()
	waited := func() time.Duration { return time.Since(began) }
	<-p.last.empty
	p.linger(b, waited)
	if waited() <= 100*time.Microsecond+time.Duration(p.expected)*10*time.Microsecond {
		p.penalty /= 2
		return
	}
	// The processors are busy with other work, and the callers had to wait for its time slices.
	p.penalty = min(8+2*p.penalty, maxPenalty)
	p.skip = p.penalty
}

// linger yields while callers that run are still on their way.
func (p *pace) linger(b *batch, waited func() time.Duration) {
	enough := waited() + time.Duration(p.expected)*perCaller
	for range yieldsPerCaller * p.expected {
		if b.callers.Load() >= p.expected || waited() > enough {
			return
		}
		runtime.Gosched()
	}
}
