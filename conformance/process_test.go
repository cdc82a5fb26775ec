package conformance_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// A child is this test's binary, run as another process. It finds the server by CONSUL_HTTP_ADDR,
// as any program with the official client does.
const (
	childRole   = "CONFORMANCE_CHILD"
	roleHold    = "hold"  // takes the lock and keeps it
	roleCount   = "count" // adds to a number under the lock
	childLock   = "l"
	childNumber = "number"
	childRounds = 10
	childTTL    = 10 * time.Second
	childDelay  = 2 * time.Second
)

func isChild() bool { return os.Getenv(childRole) != "" }

// runChild plays the child's role. It does not return.
func runChild() {
	client, err := api.NewClient(api.DefaultConfig())
	if err == nil {
		switch os.Getenv(childRole) {
		case roleHold:
			err = holdUntilKilled(client)
		case roleCount:
			err = countUnderLock(client)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// holdUntilKilled takes the lock, says so, and never gives it back.
func holdUntilKilled(client *api.Client) error {
	lock, err := client.LockOpts(&api.LockOptions{
		Key: childLock, SessionTTL: childTTL.String(), LockDelay: childDelay,
	})
	if err != nil {
		return err
	}
	lost, err := lock.Lock(nil)
	if err != nil {
		return err
	}
	fmt.Println("held")
	<-lost
	return errors.New("lost the lock")
}

// countUnderLock reads a number and writes the next one, which goes wrong as soon as two processes
// hold the lock.
func countUnderLock(client *api.Client) error {
	lock, err := client.LockKey(childLock)
	if err != nil {
		return err
	}
	for range childRounds {
		lost, err := lock.Lock(nil)
		if err != nil || lost == nil {
			return fmt.Errorf("lock: %v, %w", lost, err)
		}
		p, _, err := client.KV().Get(childNumber, nil)
		if err != nil {
			return err
		}
		number := 0
		if p != nil {
			if number, err = strconv.Atoi(string(p.Value)); err != nil {
				return err
			}
		}
		p = &api.KVPair{Key: childNumber, Value: []byte(strconv.Itoa(number + 1))}
		if _, err := client.KV().Put(p, nil); err != nil {
			return err
		}
		if err := lock.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

// child makes a process that is not yet started.
func (h *harness) child(role string) *exec.Cmd {
	h.t.Helper()
	binary, err := os.Executable()
	check(h.t, err)
	child := exec.CommandContext(h.t.Context(), binary)
	child.Env = append(os.Environ(), childRole+"="+role, "CONSUL_HTTP_ADDR="+h.server.URL)
	child.Stderr = os.Stderr
	return child
}

func TestG1_TwoProcessesHoldALockOneAtATime(t *testing.T) {
	t.Parallel()
	h := overLoopback(t, short)
	children := []*exec.Cmd{h.child(roleCount), h.child(roleCount)}
	for _, child := range children {
		check(t, child.Start())
	}
	for _, child := range children {
		check(t, child.Wait())
	}
	want := childRounds * len(children)
	equal(h, "number", string(h.get(childNumber).Value), strconv.Itoa(want))
	equal(h, "LockIndex", h.get(childLock).LockIndex, uint64(want))
}

func TestG6G7_AKilledProcessLosesItsLockAfterItsTTLAndDelay(t *testing.T) {
	t.Parallel()
	h := overLoopback(t, short)
	child := h.child(roleHold)
	out, err := child.StdoutPipe()
	check(t, err)
	check(t, child.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "held\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	check(t, child.Process.Kill())
	if err := child.Wait(); err == nil {
		t.Fatal("the child was not killed")
	}
	h.server.waitUntilAlone(t) // its queries have ended, and it renews no more

	holder := h.get(childLock).Session
	h.advance(childTTL - time.Nanosecond)
	equal(h, "holder until its TTL is over", h.get(childLock).Session, holder)
	h.advance(time.Nanosecond)
	equal(h, "holder then", h.get(childLock).Session, "")
	if h.info(holder) != nil {
		t.Fatal("its session lives on")
	}
	id := h.session(nil)
	h.advance(childDelay - time.Nanosecond)
	equal(h, "during its lock-delay", h.acquire(childLock, id, ""), false)
	h.advance(time.Nanosecond)
	equal(h, "after that", h.acquire(childLock, id, ""), true)
}
