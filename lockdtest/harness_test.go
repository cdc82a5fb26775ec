package lockdtest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// both runs the test outside a bubble and inside one.
func both(t *testing.T, test func(t *testing.T, db *lockdtest.DB)) {
	t.Helper()
	t.Run("Plain", func(t *testing.T) { test(t, lockdtest.New(t, nil)) })
	t.Run("Bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, lockdtest.New(t, nil)) })
	})
}

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// session makes a session with a TTL, and the default lock-delay.
func session(t testing.TB, db *lockdtest.DB, name string, ttl time.Duration) *lockd.Session {
	t.Helper()
	s, err := db.NewSession(&lockd.SessionOptions{Name: name, TTL: ttl})
	must(t, err)
	return s
}

func tryLock(t testing.TB, s *lockd.Session, key string) *lockd.Lock {
	t.Helper()
	l, err := s.TryLock(key, nil)
	must(t, err)
	return l
}

// call is a call on a goroutine of its own.
type call struct {
	done chan struct{}
	err  error
}

func start(fn func() error) *call {
	c := &call{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.err = fn()
	}()
	return c
}

// wait returns what the call returned.
func (c *call) wait() error {
	<-c.done
	return c.err
}

// lockInTurn waits for the lock, behind the n calls that wait already.
func lockInTurn(db *lockdtest.DB, s *lockd.Session, key string, n int) *call {
	c := start(func() error { _, err := s.Lock(context.Background(), key, nil); return err })
	db.WaitForWaiters(key, n+1)
	return c
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// fake is the testing.TB of a test that may fail.
type fake struct {
	testing.TB // nil: methods that are not below are not called
	ctx        context.Context

	mu       sync.Mutex // protects what follows
	texts    []string
	cleanups []func()
	output   bytes.Buffer
}

func (f *fake) Helper() {}

func (f *fake) Context() context.Context { return f.ctx }

func (f *fake) Cleanup(fn func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cleanups = append(f.cleanups, fn)
}

func (f *fake) Output() io.Writer { return f }

func (f *fake) Write(text []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.output.Write(text)
}

func (f *fake) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}

func (f *fake) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

func (f *fake) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

// run runs the test, and returns the texts of its failures.
func run(test func(t testing.TB)) []string { return runFake(test).texts }

// runFake runs the test as package testing does.
func runFake(test func(t testing.TB)) *fake {
	ctx, cancel := context.WithCancel(context.Background())
	f := &fake{ctx: ctx}
	<-start(func() error { test(f); return nil }).done
	cancel()
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		f.cleanups[i]()
	}
	return f
}

// fails fails the test unless it has one failure for each of the wanted, whose text has all of the
// parts.
func fails(t *testing.T, test func(t testing.TB), wanted ...[]string) {
	t.Helper()
	texts := run(test)
	if len(texts) != len(wanted) {
		t.Errorf("%d failures, want %d: %q", len(texts), len(wanted), texts)
		return
	}
	for i, parts := range wanted {
		for _, part := range parts {
			if !strings.Contains(texts[i], part) {
				t.Errorf("failure %q does not say %q", texts[i], part)
			}
		}
	}
}
