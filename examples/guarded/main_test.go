package main

import (
	"bytes"
	"testing"
)

// Ensure that the late write is refused by the row itself, and what the program prints.
func TestGuarded(t *testing.T) {
	const want = `worker-1 has the lock, and is paused before it writes
worker-2 has the lock, with a larger fence: true
worker-2 wrote 150
worker-1 wakes up and writes 90: a later holder of the lock has written
the balance is 150
`
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
}
