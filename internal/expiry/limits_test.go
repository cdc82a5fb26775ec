package expiry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd/internal/expiry"
)

// passed reports whether the limit has passed, once nothing else can happen.
func passed(l *expiry.Limit) bool {
	synctest.Wait()
	select {
	case <-l.Passed():
		return true
	default:
		return false
	}
}

// Ensure that each limit passes at its instant, in whatever order they began, and that one that
// was removed never does.
func TestLimits_PassAtTheirInstants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := clock.NewMock()
		limits := expiry.NewLimits(mock.Now, mock)
		defer limits.Stop()
		var late, early, removed expiry.Limit
		limits.Add(&late, 2*time.Second)
		limits.Add(&early, time.Second)
		limits.Add(&removed, time.Second)
		limits.Remove(&removed)
		if at, ok := limits.Next(); !ok || !at.Equal(mock.Now().Add(time.Second)) {
			t.Errorf("next: got %v, %t, want in 1 s", at, ok)
		}
		for _, want := range []struct{ early, late bool }{{}, {early: true}, {true, true}} {
			if e, l := passed(&early), passed(&late); e != want.early || l != want.late {
				t.Errorf("passed: got %t and %t, want %+v", e, l, want)
			}
			mock.Add(time.Second)
		}
		if passed(&removed) || limits.Len() != 0 {
			t.Errorf("a limit that was removed passed, or %d are left", limits.Len())
		}
	})
}

// Ensure that no limit passes after Stop, whether it began before or after.
func TestLimits_NonePassesAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mock := &counter{Mock: clock.NewMock()}
		limits := expiry.NewLimits(mock.Now, mock)
		var before, after expiry.Limit
		limits.Add(&before, time.Second)
		limits.Stop()
		limits.Add(&after, time.Second)
		if at, ok := limits.Next(); ok {
			t.Errorf("next: got %v, want none", at)
		}
		mock.Add(time.Second)
		limits.End()
		if passed(&before) || passed(&after) || mock.timers != 1 {
			t.Errorf("passed: %t and %t, by %d timers", passed(&before), passed(&after),
				mock.timers)
		}
	})
}
