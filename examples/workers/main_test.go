package main

import (
	"bytes"
	"testing"
)

// Ensure that all work is done, and never by more workers at once than there are slots.
func TestWorkers(t *testing.T) {
	const want = "8 workers did 40 pieces of work, never more than 3 at once\n"
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}
