package writer

import (
	"runtime"
	"time"
)

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
