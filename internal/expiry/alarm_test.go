package expiry_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/lockd/lockd/internal/expiry"
)

// counter is a mock clock that counts the timers set.
type counter struct {
	*clock.Mock
	timers int
}

func (c *counter) AfterFunc(d time.Duration, f func()) *clock.Timer {
	c.timers++
	return c.Mock.AfterFunc(d, f)
}

// jumper is a mock clock that moves by jump just before a timer is set, once.
type jumper struct {
	*clock.Mock
	jump time.Duration
}

func (c *jumper) AfterFunc(d time.Duration, f func()) *clock.Timer {
	jump := c.jump
	c.jump = 0
	c.Add(jump)
	return c.Mock.AfterFunc(d, f)
}

// deaf is a mock clock whose first timer never fires.
type deaf struct {
	*clock.Mock
	timers int
}

func (c *deaf) AfterFunc(d time.Duration, f func()) *clock.Timer {
	c.timers++
	if c.timers == 1 {
		f = func() {}
	}
	return c.Mock.AfterFunc(d, f)
}

func TestArm_WakesAtTheInstant(t *testing.T) {
	q, mock, wake := newQueue()
	var it expiry.Item
	q.Set(&it, start.Add(time.Second))
	q.Arm(mock.Now())

	mock.Add(time.Second - 1)
	if woken(wake) {
		t.Fatal("woken too early")
	}
	mock.Add(1)
	<-wake
	mustPop(t, q, mock.Now(), &it)
}

// Ensure that the owner may pass Arm an old reading of the clock: the timer runs from that instant.
func TestArm_OldReading(t *testing.T) {
	for _, age := range []time.Duration{1, time.Millisecond - 1, time.Millisecond, time.Minute} {
		q, mock, wake := newQueue()
		var it expiry.Item
		q.Set(&it, start.Add(time.Hour))
		read := mock.Now()
		mock.Add(age)
		q.Arm(read)

		mock.Add(time.Hour - age - 1)
		if woken(wake) {
			t.Fatalf("%v old: woken too early", age)
		}
		mock.Add(1)
		if !woken(wake) {
			t.Fatalf("%v old: not woken at the instant", age)
		}
	}
}

func TestArm_WakesAtOnceIfDue(t *testing.T) {
	q, mock, wake := newQueue()
	var it expiry.Item
	q.Set(&it, start)
	q.Arm(mock.Now())
	if !woken(wake) {
		t.Fatal("not woken")
	}
}

func TestArm_EmptyQueueIsSilent(t *testing.T) {
	c := &counter{Mock: clock.NewMock()}
	q, wake := newQueueOn(c)
	q.Arm(start)
	if c.timers != 0 || woken(wake) {
		t.Fatalf("%d timers, want none and no wake-up", c.timers)
	}
}

func TestArm_OneTimerForMany(t *testing.T) {
	c := &counter{Mock: clock.NewMock()}
	q, _ := newQueueOn(c)
	items := make([]expiry.Item, 1000)
	for i := range items {
		q.Set(&items[i], start.Add(time.Second+time.Duration(i)))
		q.Arm(start)
	}
	q.Remove(&items[0])
	q.Arm(start) // the timer is too early now, which does no harm
	if c.timers != 1 {
		t.Fatalf("timers: got %d, want 1", c.timers)
	}
	allocations := testing.AllocsPerRun(100, func() { q.Arm(start) })
	if allocations != 0 {
		t.Fatalf("allocations: got %v, want 0", allocations)
	}
}

func TestArm_EarlierItemSetsTheTimerAnew(t *testing.T) {
	c := &counter{Mock: clock.NewMock()}
	q, wake := newQueueOn(c)
	var late, early expiry.Item
	q.Set(&late, start.Add(time.Minute))
	q.Arm(start)
	q.Set(&early, start.Add(time.Second))
	q.Arm(start)
	if c.timers != 2 {
		t.Fatalf("timers: got %d, want 2", c.timers)
	}
	c.Add(time.Second)
	<-wake
	mustPop(t, q, c.Now(), &early)
}

func TestArm_WokenInVainArmsAgain(t *testing.T) {
	q, mock, wake := newQueue()
	var it expiry.Item
	q.Set(&it, start.Add(time.Second))
	q.Arm(mock.Now())
	q.Set(&it, start.Add(time.Minute))
	q.Arm(mock.Now())

	mock.Add(time.Second)
	<-wake
	mustPop(t, q, mock.Now())
	q.Arm(mock.Now())
	mock.Add(time.Minute - time.Second)
	<-wake
	mustPop(t, q, mock.Now(), &it)
}

// The timer and the instants may follow clocks that differ, such as a monotonic one and a wall
// clock that was set back: then the timer has fired, but its instant is still to come.
func TestArm_FiredTimerIsNotReliedUpon(t *testing.T) {
	q, mock, wake := newQueue()
	var it expiry.Item
	q.Set(&it, start.Add(time.Second))
	q.Arm(start)
	mock.Add(time.Second)
	<-wake

	mock.Set(start)
	q.Arm(mock.Now())
	mock.Add(time.Second)
	<-wake
}

func TestArm_TimerThatNeverFiresIsNotReliedUpon(t *testing.T) {
	c := &deaf{Mock: clock.NewMock()}
	q, wake := newQueueOn(c)
	var first, second expiry.Item
	q.Set(&first, start.Add(1*time.Second))
	q.Set(&second, start.Add(3*time.Second))
	q.Arm(start)
	c.Add(2 * time.Second)
	if woken(wake) {
		t.Fatal("woken by the timer that never fires")
	}
	// The next caller sees what is due, and sets the timer for the rest.
	q.Arm(c.Now())
	if !woken(wake) {
		t.Fatal("not woken for what is due")
	}
	mustPop(t, q, c.Now(), &first)
	q.Arm(c.Now())
	c.Add(time.Second)
	<-wake
	mustPop(t, q, c.Now(), &second)
}

// Even if the owner has taken out what was due before it calls Arm.
func TestArm_TimerThatIsOverdueIsReplaced(t *testing.T) {
	c := &deaf{Mock: clock.NewMock()}
	q, wake := newQueueOn(c)
	var it expiry.Item
	q.Set(&it, start.Add(1*time.Second))
	q.Arm(start)
	c.Add(2 * time.Second)
	q.Set(&it, start.Add(3*time.Second))
	q.Arm(c.Now())
	c.Add(time.Second)
	<-wake
}

func TestArm_ClockThatJumpsMeanwhile(t *testing.T) {
	for _, test := range []struct {
		name string
		jump time.Duration
	}{
		{"ShortOfTheInstant", 9 * time.Second},
		{"ToTheInstant", 10 * time.Second},
		{"BeyondTheInstant", 11 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			at := start.Add(10 * time.Second)
			c := &jumper{Mock: clock.NewMock(), jump: test.jump}
			q, wake := newQueueOn(c)
			var it expiry.Item
			q.Set(&it, at)
			q.Arm(start)
			if c.Now().Before(at) {
				c.Set(at)
			}
			<-wake
			mustPop(t, q, c.Now(), &it)
		})
	}
}

func TestStop_SilencesUntilTheNextArm(t *testing.T) {
	q, mock, wake := newQueue()
	q.Stop()
	var it expiry.Item
	q.Set(&it, start.Add(time.Second))
	q.Arm(mock.Now())
	q.Stop()
	q.Stop()
	mock.Add(time.Second)
	if woken(wake) {
		t.Fatal("woken after Stop")
	}
	q.Arm(mock.Now())
	if !woken(wake) || q.Len() != 1 {
		t.Fatalf("not woken, or items lost: len %d", q.Len())
	}

	// The instant for which the stopped timer was set is still ahead.
	q.Set(&it, mock.Now().Add(time.Second))
	q.Arm(mock.Now())
	q.Stop()
	q.Arm(mock.Now())
	mock.Add(time.Second)
	if !woken(wake) {
		t.Fatal("not woken by the Arm after Stop")
	}
}

func TestArm_InRealTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		q, wake := newQueueOn(c)
		begun := c.Now()
		var first, second expiry.Item
		q.Set(&first, begun.Add(15*time.Second))
		q.Set(&second, begun.Add(time.Hour))
		for _, want := range []*expiry.Item{&first, &second} {
			q.Arm(c.Now())
			<-wake
			if now := c.Now(); !now.Equal(want.At()) {
				t.Fatalf("woken at %v, want %v", now, want.At())
			}
			mustPop(t, q, c.Now(), want)
		}
	})
}
