//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/cmd/lockd/internal/lockclient"
)

// process is a command line that runs in a process of its own.
type process struct {
	*exec.Cmd
	t          *testing.T
	in         io.WriteCloser
	out        *bufio.Reader // ends when no process has it open any more
	complaints bytes.Buffer
}

// longest is how long a test waits for the output of a process, or for its end.
const longest = time.Minute

// start starts a command line, with the environment that is given besides this process's.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return startProgram(t, env, program, args...)
}

// startProgram starts a program that runs a command line, in time, in its own process.
func startProgram(t *testing.T, env []string, program string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.CommandContext(t.Context(), program, args...), t: t}
	var err error
	p.Env = append(append(os.Environ(), envRun+"=1"), env...)
	// Otherwise each process of a race detector sleeps for a second at its end.
	p.Env = append(p.Env, "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	p.Stderr = &p.complaints
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe() // and not StdoutPipe, which Wait closes
	if err != nil {
		t.Fatal(err)
	}
	p.Stdout = write
	p.out = bufio.NewReader(read)
	err = errors.Join(read.SetReadDeadline(time.Now().Add(longest)), p.Start(), write.Close())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		if p.ProcessState == nil {
			_ = p.Wait()
		}
		_ = read.Close()
	})
	return p
}

// locking starts lockd lock on a server, with a script for the shell as the command. Without
// arguments the key is k. A parallel test runs a command under a lock only in this way: in the
// process of the tests, lockd lock would collect the exit codes of all its children.
func locking(t *testing.T, address string, args []string, script string) *process {
	t.Helper()
	if args == nil {
		args = []string{"k"}
	}
	args = append(append([]string{"lock", "--http-addr", address}, args...),
		"--", "sh", "-c", script)
	return start(t, nil, args...)
}

// line reads a line of the output.
func (p *process) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("read a line: %v after %q; %s", err, line, p.complaints.String())
	}
	return strings.TrimSuffix(line, "\n")
}

// rest reads the output to its end: until none of the processes is left.
func (p *process) rest() string {
	p.t.Helper()
	rest, err := io.ReadAll(p.out)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(rest)
}

// ends waits for the process, and fails the test unless the process has the exit code, or is ended
// by the signal, and its complaints contain the text.
func (p *process) ends(code int, text string) {
	p.t.Helper()
	if err := p.Wait(); p.ProcessState == nil {
		p.t.Fatal(err)
	}
	if got := p.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d, want %d", got, code)
	}
	if got := p.complaints.String(); !strings.Contains(got, text) || text == "" && got != "" {
		p.t.Errorf("standard error %q, want %q", got, text)
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// nothingLeft fails the test if the database has a key or a session.
func nothingLeft(t *testing.T, db *lockd.DB) {
	t.Helper()
	s := db.Snapshot()
	for key, e := range s.Prefix("") {
		t.Errorf("key %q is left, locked by %v", key, e.Session)
	}
	for info := range s.Sessions() {
		t.Errorf("session %+v is left", info)
	}
}

// Ensure that the command runs while the lock is held, with a sequencer that proves it, and that
// the lock is given back when it ends.
func TestLock(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	p := locking(t, s.URL, nil, `echo "$LOCKD_SEQUENCER"; read -r line; echo "$line"; exit 7`)
	q, err := lockd.ParseSequencer(p.line())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.CheckSequencer(q); err != nil || q.Key != "k" {
		t.Errorf("%v: %v", q, err)
	}
	info, ok := db.Snapshot().Session(q.Session)
	if !ok || info.TTL != 15*time.Second || info.LockDelay != 15*time.Second ||
		!strings.HasSuffix(info.Name, ": sh") {
		t.Errorf("session %+v", info)
	}
	if _, err := io.WriteString(p.in, "input\n"); err != nil {
		t.Fatal(err)
	}
	if got := p.rest(); got != "input\n" {
		t.Errorf("output %q", got)
	}
	p.ends(7, "")
	nothingLeft(t, db)
}

// Ensure that the session has the name, the TTL and the lock-delay that the command line asks for.
func TestLock_Session(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	args := []string{"--name", "nightly", "--ttl", "20s", "--lock-delay", "0s", "k"}
	p := locking(t, s.URL, args, "echo ready; read -r line")
	if got := p.line(); got != "ready" {
		t.Fatal(got)
	}
	info := sessionsOf(db)[0]
	if info.Name != "nightly" || info.TTL != 20*time.Second || info.LockDelay != 0 {
		t.Errorf("session %+v", info)
	}
	if _, err := io.WriteString(p.in, "\n"); err != nil {
		t.Fatal(err)
	}
	p.rest()
	p.ends(0, "")
}

// Ensure that a command runs under the lock of a lockd serve, as users run it.
func TestLock_Serve(t *testing.T) {
	t.Parallel()
	s := served(t, "--memory")
	for _, args := range [][]string{{"k"}, {"-n", "1048576", "--lock-delay", "0s", "k"}} {
		p := locking(t, s.url, args, `echo "$LOCKD_SEQUENCER"; read -r line; exit 7`)
		q, err := lockd.ParseSequencer(p.line())
		if err != nil {
			t.Fatal(err)
		}
		var locks []lockclient.LockInfo
		s.decode(s.at("", "locks", "--json"), &locks)
		if len(locks) != 1 || locks[0].Key != q.Key || locks[0].Session != q.Session.String() ||
			locks[0].LockIndex != q.LockIndex || locks[0].ModifyIndex != q.Fence {
			t.Errorf("locks %+v, sequencer %v", locks, q)
		}
		if err := p.in.Close(); err != nil {
			t.Fatal(err)
		}
		p.rest()
		p.ends(7, "")
		if r := s.at("", "session", "list"); r.out != "" {
			t.Errorf("left: %s", r.out)
		}
	}
	s.end()
}

// Ensure that the exit code is the command's or says which signal ended it, and that lockd's own
// exit codes differ.
func TestLock_ExitCodes(t *testing.T) {
	db, s := testServer(t)
	text := filepath.Join(t.TempDir(), "text")
	write(t, text, []byte("no program"))
	for _, test := range []struct {
		code int
		text string
		args []string
	}{
		{0, "", []string{"k", "--", "true"}},
		{0, "", []string{"k", "true", "--no-flag-of-lockd"}},
		{0, "", []string{"--", "-k", "--", "true"}},
		{0, "", []string{"--ttl", "1s", "--lock-delay", "1m", "k", "true"}},
		{1, "", []string{"k", "--", "false"}},
		{137, "", []string{"k", "--", "sh", "-c", "kill -9 $$"}},
		{exitNoCommand, "no-such-command", []string{"k", "--", "no-such-command"}},
		{exitNoCommand, "absent", []string{"k", "--", text + ".absent"}},
		{exitNotStarted, "text", []string{"k", "--", text}},
		{exitLockFailed, "an argument is missing", []string{"k"}},
		{exitLockFailed, "an argument is missing", []string{"k", "--"}},
		{exitLockFailed, "KEY is empty; see lockd lock --help", []string{"", "--", "true"}},
		{exitLockFailed, `KEY "k\xff" is not UTF-8`, []string{"k\xff", "--", "true"}},
		{exitLockFailed, `: -n "x" is not a whole number;`, []string{"-n", "x", "k", "--", "true"}},
		{exitLockFailed, `--timeout "5" is not a time with its unit, such as 500ms, 30s or 1m30s;`,
			[]string{"--timeout", "5", "k", "--", "true"}},
		{exitLockFailed, "the server does not take --ttl 25h0m0s: ",
			[]string{"--ttl", "25h", "k", "true"}},
		{exitLockFailed, "no-such-flag", []string{"--no-such-flag", "k", "--", "true"}},
		{exitLockFailed, `"--try" comes after KEY`, []string{"k", "--try", "--", "true"}},
		{exitNoCommand, "absent", []string{"k", "--", "./--absent"}},
		{exitLockFailed, "-n -1 is below 0", []string{"-n", "-1", "k", "--", "true"}},
		{exitLockFailed, "-n 1048577 is more than 1048576",
			[]string{"-n", "1048577", "k", "--", "true"}},
		{exitLockFailed, `"k" has no limit yet: name one`,
			[]string{"-n", "0", "k", "--", "true"}},
		{exitLockFailed, "both --shared and -n", []string{"--shared", "-n", "1", "k", "true"}},
		{exitLockFailed, "both -n and --lock-delay",
			[]string{"-n", "1", "--lock-delay", "1s", "k", "true"}},
		{exitLockFailed, "both --try and", []string{"--try", "--timeout", "1s", "k", "true"}},
		{exitLockFailed, "not above 0", []string{"--timeout", "0s", "k", "true"}},
		{exitLockFailed, "--ttl 1ms", []string{"--ttl", "1ms", "k", "true"}},
		{exitLockFailed, "--lock-delay 1h", []string{"--lock-delay", "1h", "k", "true"}},
		{exitLockFailed, "--lock-delay -1s is not between 0 and 1m0s",
			[]string{"--lock-delay", "-1s", "k", "true"}},
		{exitLockFailed, "no clean path", []string{"-n", "1", "k/", "true"}},
		{exitLockFailed, "invalid argument: key has",
			[]string{strings.Repeat("k", lockd.MaxKeySize+1), "true"}},
	} {
		t.Run(fmt.Sprintf("%.50s", strings.Join(test.args, " ")), func(t *testing.T) {
			args := append([]string{"lock", "--http-addr", s.URL}, test.args...)
			r := command(t, "", args...)
			if r.code != test.code || !strings.Contains(r.complaints, test.text) ||
				(test.text == "") != (r.complaints == "") {
				t.Errorf("exit code %d, %q; want %d, %q", r.code, r.complaints, test.code,
					test.text)
			}
			nothingLeft(t, db)
		})
	}
	s.Close()
	r := command(t, "", "lock", "--http-addr", s.URL, "k", "true")
	r.wants(t, exitLockFailed, "refused")
}

// heldByOther takes the lock of key k with a session of its own.
func heldByOther(t *testing.T, db *lockd.DB) *lockd.Lock {
	t.Helper()
	session, err := db.NewSession(nil)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := session.TryLock("k", nil)
	if err != nil {
		t.Fatal(err)
	}
	return lock
}

// Ensure that the wait for a lock that another session holds is no longer than asked, and that it
// leaves nothing behind.
func TestLock_NotAcquired(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	holder := heldByOther(t, db).Sequencer().Session
	for _, args := range [][]string{
		{"--try", "k"}, {"--timeout", "100ms", "k"},
	} {
		args = append(append([]string{"lock", "--http-addr", s.URL}, args...), "echo", "it runs")
		r := command(t, "", args...)
		r.wants(t, exitNotAcquired, holder.String())
		if r.out != "" || strings.Contains(r.complaints, "nobody gets a lock") {
			t.Errorf("%q: output %q, complaints %s", args, r.out, r.complaints)
		}
	}
	if err := db.EndSession(holder); err != nil { // its lock-delay begins
		t.Fatal(err)
	}
	r := command(t, "", "lock", "--http-addr", s.URL, "--try", "k", "echo", "it runs")
	r.wants(t, exitNotAcquired, "due to lock delay until ")
	r.wants(t, exitNotAcquired, "; for that time, 15s by default, nobody gets a lock")
	if n := len(sessionsOf(db)); n != 0 {
		t.Errorf("%d sessions left", n)
	}
}

// Ensure that commands run side by side under a shared lock, each with a sequencer that proves its
// share, while no caller gets the exclusive lock, and that each share is given back.
func TestLock_Shared(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	const script = `echo "$LOCKD_SEQUENCER"; read -r line; exit 7`
	var both []*process
	for range 2 {
		both = append(both, locking(t, s.URL, []string{"--shared", "k"}, script))
	}
	for _, p := range both { // both are inside
		q, err := lockd.ParseSequencer(p.line())
		if err != nil {
			t.Fatal(err)
		}
		if err := db.CheckSequencer(q); err != nil || q.Key != "k" || q.Mode != lockd.Shared {
			t.Errorf("%v: %v", q, err)
		}
	}
	r := command(t, "", "lock", "--http-addr", s.URL, "--try", "k", "echo", "it runs")
	r.wants(t, exitNotAcquired, `key "k" is shared by 2 holders`)
	alone := locking(t, s.URL, nil, "echo alone")
	for _, p := range both {
		if err := p.in.Close(); err != nil {
			t.Fatal(err)
		}
		p.rest()
		p.ends(7, "")
	}
	if got := alone.rest(); got != "alone\n" {
		t.Errorf("output %q", got)
	}
	alone.ends(0, "")
	if e, ok := db.Get("k"); !ok || e.LockIndex != 2 || len(sessionsOf(db)) != 0 {
		t.Errorf("left: %+v, %d sessions", e, len(sessionsOf(db)))
	}
}

// Ensure that a lock that was to be shared is said not to be, on a server that has exclusive locks
// only.
func TestLock_SharedAtConsul(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	consul := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/lockd/") {
			http.NotFound(w, r)
			return
		}
		s.Config.Handler.ServeHTTP(w, r)
	}))
	t.Cleanup(consul.Close)
	p := locking(t, consul.URL, []string{"--shared", "k"}, "exit 7")
	p.rest()
	p.ends(7, "lockd: the server has no shared locks, as it has no /v1/lockd/locks: key "+
		"\"k\" is locked exclusively, and nobody shares it\n")
	if n := len(sessionsOf(db)); n != 0 {
		t.Errorf("%d sessions left", n)
	}
}

// Ensure that a signal ends the wait for a lock, and leaves nothing behind.
func TestLock_SignalWhileWaiting(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	holder, err := db.NewSession(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.TryLock("k", nil); err != nil {
		t.Fatal(err)
	}
	index := db.Snapshot().IndexOf(lockd.SessionsScope())
	p := locking(t, s.URL, nil, "echo it runs")
	_, _, err = db.Wait(t.Context(), lockd.SessionsScope(), index, 0) // its session exists
	if err != nil {
		t.Fatal(err)
	}
	p.signal(syscall.SIGTERM)
	if got := p.rest(); got != "" {
		t.Errorf("output %q", got)
	}
	p.ends(exitSignal+int(syscall.SIGTERM), "ended by a signal")
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(sessionsOf(db)); n != 0 {
		t.Errorf("%d sessions left", n)
	}
}

// Ensure that signals reach every process of the command's group.
func TestLock_Signals(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	p := locking(t, s.URL, nil, `exec 2>/dev/null # for shells that tell which signal came
		trap "wait; echo parent; exit 9" USR1
		sh -c 'trap "echo child; exit 0" USR1; echo ready; while :; do sleep 0.02; done' &
		while :; do sleep 0.02; done`)
	if got := p.line(); got != "ready" {
		t.Fatal(got)
	}
	p.signal(syscall.SIGUSR1)
	if got := p.rest(); got != "child\nparent\n" {
		t.Errorf("output %q", got)
	}
	p.ends(9, "")

	p = locking(t, s.URL, nil, `echo ready; sleep 1000 & exec sleep 1000`)
	p.line()
	p.signal(os.Interrupt)
	p.rest()
	p.ends(exitSignal+int(syscall.SIGINT), "")
	nothingLeft(t, db)
}

// Ensure that processes that the command leaves running are ended before the lock is given back.
func TestLock_Remnants(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	p := locking(t, s.URL, nil, `sleep 1000 & echo started; exit 5`)
	p.line()
	e, _ := db.Get("k")
	if got := p.rest(); got != "" {
		t.Errorf("output %q", got)
	}
	p.ends(5, "")
	if e.Session == (lockd.SessionID{}) {
		t.Error("the lock was not held")
	}
	nothingLeft(t, db)
}

// Ensure that processes that the command leaves running are ended at once when the lock is lost:
// another session may have it. No other test runs beside this one, which measures time.
func TestLock_Remnants_Lost(t *testing.T) {
	db, s := testServer(t)
	p := locking(t, s.URL, []string{"--lock-delay", "0", "k"}, `
		exec 2>/dev/null # for shells that tell which signal came
		(trap 'echo told' TERM; echo ready; while :; do sleep 0.02; done) &
		read -r line; exit 5`)
	if got := p.line(); got != "ready" {
		t.Fatal(got)
	}
	if err := p.in.Close(); err != nil {
		t.Fatal(err)
	}
	if got := p.line(); got != "told" { // the command has ended, and its remnant goes on
		t.Fatal(got)
	}
	told := time.Now()
	if err := db.EndSession(sessionsOf(db)[0].ID); err != nil {
		t.Fatal(err)
	}
	p.rest()
	if lived := time.Since(told); lived > remnants*3/4 {
		t.Errorf("a process went on for %v without the lock", lived)
	}
	p.ends(5, "")
}

// Ensure that the command is told to end when its lock is lost, and is killed if it does not, and
// that the exit code says so.
func TestLock_Lost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, trap, said, why string
		take                  func(db *lockd.DB) error
	}{
		// The lock-delay leaves time to say goodbye.
		{"SessionEnded", "echo bye; exit 0", "bye\n", "was destroyed", func(db *lockd.DB) error {
			return db.EndSession(sessionsOf(db)[0].ID)
		}},
		// But no more than a sixth of the TTL.
		{"SessionEnded_Deaf", "", "", "was destroyed", func(db *lockd.DB) error {
			return db.EndSession(sessionsOf(db)[0].ID)
		}},
		// Another session may have it already.
		{"KeyDeleted", "", "", `: key "k" was deleted`, func(db *lockd.DB) error {
			_, err := db.Delete("k")
			return err
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db, s := testServer(t)
			p := locking(t, s.URL, []string{"--ttl", "6s", "k"}, `
				trap '`+test.trap+`' TERM; echo ready; while :; do sleep 0.02; done`)
			if got := p.line(); got != "ready" {
				t.Fatal(got)
			}
			if err := test.take(db); err != nil {
				t.Fatal(err)
			}
			if got := p.rest(); got != test.said {
				t.Errorf("output %q, want %q", got, test.said)
			}
			p.ends(exitLost, "the lock was lost, and the command was ended: ")
			p.ends(exitLost, test.why)
			if n := len(sessionsOf(db)); n != 0 {
				t.Errorf("%d sessions left", n)
			}
		})
	}
}

// Ensure that the command is not started under a session that is lost: the answer to the request
// for the lock may come late.
func TestLock_Lost_BeforeTheCommand(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	c, err := lockclient.New(api.Config{Address: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	k, err := c.Keep(t.Context(), lockclient.SessionOptions{TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.EndSession(sessionsOf(db)[0].ID); err != nil {
		t.Fatal(err)
	}
	<-k.Done()
	command := exec.CommandContext(t.Context(), "true")
	err = supervise(command, k, newSignals())
	if _, ok := errors.AsType[*lostLock](err); !ok || command.Process != nil {
		t.Errorf("got %v, started: %t", err, command.Process != nil)
	}
	if err := k.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Ensure that a loss that the server has not told yet when the command ends is noticed by the
// release, and that the exit code says so.
func TestLock_Lost_BeforeTheRelease(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"0", "5"} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			db, s := testServer(t)
			watched := make(chan struct{})
			var once sync.Once
			silent := httptest.NewServer(http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Query().Has("index") { // the client waits for a change
						once.Do(func() { close(watched) })
						<-r.Context().Done()
						return
					}
					s.Config.Handler.ServeHTTP(w, r)
				}))
			defer silent.Close()
			p := locking(t, silent.URL, nil, "echo ready; read -r line; exit "+code)
			if got := p.line(); got != "ready" {
				t.Fatal(got)
			}
			<-watched // a read of the key before would find the loss
			if _, err := db.Delete("k"); err != nil {
				t.Fatal(err)
			}
			if err := p.in.Close(); err != nil {
				t.Fatal(err)
			}
			p.rest()
			p.ends(exitLost, `the lock was lost, and the command has ended by itself: `+
				`key "k" was deleted`)
			nothingLeft(t, db)
		})
	}
}

// Ensure that a command whose session cannot be renewed leaves no process when the session can end.
func TestLock_ServerGone(t *testing.T) {
	t.Parallel()
	db, s := testServer(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p := locking(t, s.URL, []string{"--ttl", "3s", "k"}, `exec >`+fifo+`
		trap '' TERM; echo ready; while :; do sleep 0.02; done`)
	command, err := os.Open(fifo) // only the command and its children have it open
	if err != nil {
		t.Fatal(err)
	}
	output := bufio.NewReader(command)
	if line, err := output.ReadString('\n'); err != nil {
		t.Fatal(line, err)
	}
	cut(t, s)
	if err := command.SetReadDeadline(time.Now().Add(longest)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(output); err != nil {
		t.Fatal(err)
	}
	if e, ok := db.Get("k"); !ok || e.Session == (lockd.SessionID{}) {
		t.Errorf("the lock had been lost before the command was ended: %+v", e)
	}
	p.ends(exitLost, "could not be renewed")
	if err := command.Close(); err != nil {
		t.Fatal(err)
	}
}

// Ensure that the error about a lock that cannot be given back says when it is free: not before its
// session has ended, maybe after its TTL, and its lock-delay has passed. A slot has no lock-delay.
func TestLock_NotGivenBack(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
		free string // after the TTL
	}{
		{"Lock", []string{"k"}, ", and its lock-delay of 15s has passed\n"},
		{"NoDelay", []string{"--lock-delay", "0", "k"}, "\n"},
		{"Slot", []string{"-n", "1", "k"}, "\n"},
		{"Slot_NoDelay", []string{"-n", "1", "--lock-delay", "0", "k"}, "\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db, s := testServer(t)
			p := locking(t, s.URL, test.args, "echo ready; read -r line; exit 5")
			if got := p.line(); got != "ready" {
				t.Fatal(got)
			}
			cut(t, s)
			if err := p.in.Close(); err != nil {
				t.Fatal(err)
			}
			p.rest()
			p.ends(5, `lockd: "k" may not be given back: `)
			p.ends(5, fmt.Sprintf("; it is free at the latest when session %v has ended, "+
				"which has a TTL of 15s and may be let live for longer%s", sessionsOf(db)[0].ID,
				test.free))
		})
	}
}

// cut ends the server's connections. It closes the listener first: a client whose connection has
// ended may dial again at once.
func cut(t *testing.T, s *httptest.Server) {
	t.Helper()
	if err := s.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	s.CloseClientConnections()
}

// Ensure that of several commands under a lock one runs at a time, and with -n as many as there are
// slots.
func TestLock_Contention(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"Lock": {"k"}, "Slot": {"-n", "1", "k"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, s := testServer(t)
			folder := filepath.Join(t.TempDir(), "inside")
			var all []*process
			for range 4 {
				all = append(all, locking(t, s.URL, args, // mkdir fails if two commands are inside
					"mkdir "+folder+" && sleep 0.02 && rmdir "+folder))
			}
			for _, p := range all {
				p.rest()
				p.ends(0, "")
			}
			if name == "Lock" {
				nothingLeft(t, db)
			}
		})
	}
	t.Run("Slots", func(t *testing.T) {
		t.Parallel()
		_, s := testServer(t)
		a := locking(t, s.URL, []string{"-n", "2", "k"}, "echo a; read -r line")
		b := locking(t, s.URL, []string{"-n", "2", "k"}, "echo b; read -r line")
		a.line()
		b.line() // both are inside
		r := command(t, "", "lock", "--http-addr", s.URL, "-n", "2", "--try", "k", "true")
		r.wants(t, exitNotAcquired, "all slots")
		for _, p := range []*process{a, b} {
			if err := p.in.Close(); err != nil {
				t.Fatal(err)
			}
			p.rest()
			p.ends(1, "")
		}
		c := locking(t, s.URL, []string{"-n", "0", "--try", "k"}, "true")
		c.rest()
		c.ends(0, "")
	})
}
