package expiry_test

import (
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"go.uber.org/goleak"

	"github.com/lockd/lockd/internal/expiry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is where a mock clock begins.
var start = time.Unix(0, 0)

// queue is a heap with an alarm for its first item, as the owners of both have them.
type queue struct {
	expiry.Heap
	alarm *expiry.Alarm
}

func (q *queue) Arm(now time.Time) {
	if at, ok := q.Next(); ok {
		q.alarm.Arm(now, at)
	}
}

func (q *queue) Stop() { q.alarm.Stop() }

// newQueue returns a queue on a mock clock, and the channel on which it wakes.
func newQueue() (*queue, *clock.Mock, <-chan struct{}) {
	mock := clock.NewMock()
	q, wake := newQueueOn(mock)
	return q, mock, wake
}

// newQueueOn returns a queue on the clock, and the channel on which it wakes.
func newQueueOn(c clock.Clock) (*queue, <-chan struct{}) {
	wake, woken := waker()
	return &queue{alarm: expiry.NewAlarm(c, wake)}, woken
}

// waker returns a function that wakes, and the channel on which it does.
func waker() (wake func(), woken <-chan struct{}) {
	c := make(chan struct{}, 1)
	return func() {
		select {
		case c <- struct{}{}:
		default:
		}
	}, c
}

// woken reports whether a wake-up has arrived. It does not wait for one.
func woken(wake <-chan struct{}) bool {
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

// mustPop fails unless exactly these items are due, in this order.
func mustPop(t *testing.T, q *queue, now time.Time, want ...*expiry.Item) {
	t.Helper()
	for i, it := range want {
		if got := q.Pop(now); got != it {
			t.Fatalf("pop %d: got %v, want %v", i, got, it)
		}
	}
	if got := q.Pop(now); got != nil {
		t.Fatalf("pop: got %v, want nothing more", got)
	}
}
