package main

import "testing"

// Ensure that the command does not outlive who renews its session.
func TestLock_Killed(t *testing.T) {
	t.Parallel()
	_, s := testServer(t)
	p := locking(t, s.URL, nil, "echo ready; exec sleep 1000")
	if got := p.line(); got != "ready" {
		t.Fatal(got)
	}
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.rest() // ends when the command does
}
