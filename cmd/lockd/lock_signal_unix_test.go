//go:build unix

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockd/lockd"
)

// Ensure that a signal that the process ignores from its start, such as a hangup under nohup, stays
// ignored: while the process waits for the lock, and in the command.
func TestLock_SignalIgnored(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		signal os.Signal
	}{{"HUP", syscall.SIGHUP}, {"INT", syscall.SIGINT}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db, s := testServer(t)
			lock := heldByOther(t, db)
			program, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			index := db.Snapshot().IndexOf(lockd.SessionsScope())
			p := startProgram(t, nil, "sh", "-c", `trap '' `+test.name+`; exec "$0" "$@"`, program,
				"lock", "--http-addr", s.URL, "k", "--", "sh", "-c", `exec 2>/dev/null
				trap 'echo told; exit 0' USR1; echo ready; while :; do sleep 0.02; done`)
			_, _, err = db.Wait(t.Context(), lockd.SessionsScope(), index, 0) // it waits
			if err != nil {
				t.Fatal(err)
			}
			p.signal(test.signal)
			if err := lock.Unlock(); err != nil {
				t.Fatal(err)
			}
			if got := p.line(); got != "ready" {
				t.Fatal(got)
			}
			p.signal(test.signal)
			p.signal(syscall.SIGUSR1) // it is passed on after the hangup
			if got := p.rest(); got != "told\n" {
				t.Errorf("output %q", got)
			}
			p.ends(0, "")
		})
	}
}

// Ensure that a second signal, not of the same burst, ends the process when the server does not
// answer, while the process gives up a wait for a lock, or gives a lock back.
func TestLock_SecondSignal(t *testing.T) {
	t.Parallel()
	t.Run("Waiting", func(t *testing.T) {
		t.Parallel()
		db, s := testServer(t)
		heldByOther(t, db)
		address, asked := hanging(t, s.Config.Handler, "/v1/session/destroy/")
		index := db.Snapshot().IndexOf(lockd.SessionsScope())
		p := locking(t, address, nil, "echo it runs")
		// Its session is there.
		if _, _, err := db.Wait(t.Context(), lockd.SessionsScope(), index, 0); err != nil {
			t.Fatal(err)
		}
		p.signal(syscall.SIGTERM)
		<-asked
		p.endsByRepeated(syscall.SIGINT)
	})
	t.Run("Command", func(t *testing.T) {
		t.Parallel()
		_, s := testServer(t)
		address, asked := hanging(t, s.Config.Handler, "/v1/session/destroy/")
		p := locking(t, address, nil, `exec 2>/dev/null
			trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done`)
		if got := p.line(); got != "ready" {
			t.Fatal(got)
		}
		p.signal(syscall.SIGTERM)
		<-asked
		p.endsByRepeated(syscall.SIGTERM)
	})
}

// Ensure that a signal that is sent twice at once, as timeout(1) does, counts as one: the lock is
// given back.
func TestLock_SignalTwice(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	heldByOther(t, db)
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/session/destroy/") {
			asked <- struct{}{}
			<-answer
		}
		s.Config.Handler.ServeHTTP(w, r)
	}))
	defer slow.Close()
	index := db.Snapshot().IndexOf(lockd.SessionsScope())
	p := locking(t, slow.URL, nil, "echo it runs")
	// Its session is there.
	if _, _, err := db.Wait(t.Context(), lockd.SessionsScope(), index, 0); err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGTERM)
	<-asked
	p.signal(syscall.SIGTERM)
	close(answer)
	p.ends(exitSignal+int(syscall.SIGTERM), "ended by a signal: terminated")
	if n := len(sessionsOf(db)); n != 1 {
		t.Errorf("%d sessions are left, want that of the holder", n)
	}
}

// Ensure that a signal ends a command that is stopped, by Ctrl-Z or because it has read from its
// terminal: otherwise it could not act on the signal, and the lock would stay held.
func TestLock_SignalToStopped(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	p := locking(t, s.URL, nil, `exec 2>/dev/null
		trap 'wait; exit 7' TERM
		sh -c 'trap "echo told; exit 0" TERM; kill -STOP $$; while :; do sleep 0.02; done' &
		until case $(ps -o stat= -p $!) in T*) ;; *) false;; esac; do sleep 0.02; done
		echo stopped; while :; do sleep 0.02; done`)
	if got := p.line(); got != "stopped" {
		t.Fatal(got)
	}
	p.signal(syscall.SIGTERM)
	if got := p.rest(); got != "told\n" {
		t.Errorf("output %q", got)
	}
	p.ends(7, "")
	nothingLeft(t, db)
}

// Ensure that a loss is not told late because the server does not answer: there is nothing to wait
// for.
func TestLock_LostToSilentServer(t *testing.T) {
	t.Parallel()
	_, s := testServer(t)
	address, _ := hanging(t, s.Config.Handler, "/v1/session/renew/", "/v1/session/destroy/")
	p := locking(t, address, []string{"--ttl", "3s", "k"}, "echo ready; exec sleep 1000")
	p.line()
	held := time.Now()
	p.rest()
	p.ends(exitLost, "could not be renewed")
	endedSoon(t, held)
}

// Ensure that a wait that has ended is not held up by a server that does not answer.
func TestLock_TimeoutAtSilentServer(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	heldByOther(t, db)
	address, _ := hanging(t, s.Config.Handler, "/v1/lockd/locks", "/v1/session/destroy/")
	began := time.Now()
	p := locking(t, address, []string{"--timeout", "100ms", "k"}, "echo it runs")
	if got := p.rest(); got != "" {
		t.Error(got)
	}
	p.ends(exitNotAcquired, errTimeout.Error())
	endedSoon(t, began)
}

// endedSoon fails if that took as long as a request to a server that sends nothing may take.
func endedSoon(t *testing.T, began time.Time) {
	t.Helper()
	const silence = 10 * time.Second
	if took := time.Since(began); took >= silence {
		t.Errorf("it ended after %v", took)
	}
}

// Ensure that a person at a shell is told what a wait is about that the server's failures prolong.
func TestLock_SaysThatItAsksAgain(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	address, _ := failingOnce(t, s.Config.Handler, "no space left on device",
		func(r *http.Request) bool { return r.URL.Path == "/v1/txn" })
	p := locking(t, address, nil, "exit 5")
	p.rest()
	p.ends(5, "lockd: lock: not acquired yet: Put \""+address+"/v1/txn\": 500: no space left "+
		"on device; asking again each second\n")
	nothingLeft(t, db)
}

// Ensure that a release that fails is tried again.
func TestLock_GivenBackLater(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	address, failed := failingOnce(t, s.Config.Handler, "commit did not succeed",
		func(r *http.Request) bool { // a release
			e, _ := db.Get("k")
			return r.URL.Path == "/v1/txn" && e.Session != (lockd.SessionID{})
		})
	p := locking(t, address, nil, "exit 5")
	p.rest()
	p.ends(5, "")
	nothingLeft(t, db)
	if !failed.Load() {
		t.Error("no release has failed")
	}
}

// failingOnce serves what next does, except that it answers the first of the requests that fails
// names with an error, and then reports that it has failed.
func failingOnce(
	t *testing.T, next http.Handler, text string, fails func(*http.Request) bool,
) (address string, failed *atomic.Bool) {
	t.Helper()
	failed = new(atomic.Bool)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fails(r) && failed.CompareAndSwap(false, true) {
			http.Error(w, text, http.StatusInternalServerError)
			return
		}
		next.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, failed
}

// hanging serves what next does, except that it leaves requests for some paths without an answer,
// and reports each of them.
func hanging(
	t *testing.T, next http.Handler, paths ...string,
) (address string, asked chan string) {
	t.Helper()
	asked = make(chan string, 8)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.ContainsFunc(paths, func(path string) bool {
			return strings.HasPrefix(r.URL.Path, path)
		}) {
			next.ServeHTTP(w, r)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the end of the client is not seen
		asked <- r.URL.Path
		<-r.Context().Done()
	}))
	t.Cleanup(s.Close)
	return s.URL, asked
}

// endsBy waits for the process, and fails the test unless the signal ends it.
func (p *process) endsBy(s syscall.Signal) {
	p.t.Helper()
	err := p.Wait()
	exit, ok := err.(*exec.ExitError)
	if !ok {
		p.t.Fatalf("ended with %v; %s", err, p.complaints.String())
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); !ok || status.Signal() != s {
		p.t.Errorf("%v, want %v; %s", err, s, p.complaints.String())
	}
}

// endsByRepeated sends the signal until the process has ended, and fails the test unless the signal
// ends it.
func (p *process) endsByRepeated(s syscall.Signal) {
	p.t.Helper()
	var sending sync.WaitGroup
	sending.Go(func() {
		for p.Process.Signal(s) == nil { // until endsBy has seen the end
			time.Sleep(burst / 10)
		}
	})
	p.endsBy(s)
	sending.Wait()
}
