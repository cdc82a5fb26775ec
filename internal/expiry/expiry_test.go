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

// newQueue returns a queue on a mock clock, and the channel on which it wakes.
func newQueue() (*expiry.Queue, *clock.Mock, <-chan struct{}) {
	mock := clock.NewMock()
	q, wake := newQueueOn(mock)
	return q, mock, wake
}

// newQueueOn returns a queue on the clock, and the channel on which it wakes.
func newQueueOn(c clock.Clock) (*expiry.Queue, <-chan struct{}) {
	wake, woken := waker()
	return expiry.New(c, wake), woken
}

// newAlarm returns an alarm on a mock clock, and the channel on which it wakes.
func newAlarm() (*expiry.Alarm, *clock.Mock, <-chan struct{}) {
	mock := clock.NewMock()
	wake, woken := waker()
	return expiry.NewAlarm(mock, wake), mock, woken
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
func mustPop(t *testing.T, q *expiry.Queue, now time.Time, want ...*expiry.Item) {
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
