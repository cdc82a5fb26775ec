package main

import (
	"bytes"
	"context"
	"errors"
	"testing"
)

// Ensure that the job is done once a day, also after a restart, and again if it fails.
func TestDaily(t *testing.T) {
	const want = `started on 2026-11-20: 3 asked for the job, 1 did it, 0 failed
started on 2026-11-20: 3 asked for the job, 0 did it, 0 failed
started on 2026-11-21: 3 asked for the job, 1 did it, 1 failed
       failed: printer on fire
`
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
}

// Ensure that the program fails if the job could not be asked for.
func TestDaily_TellsOfOtherErrors(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	if err := run(ctx, &out); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the error of the context; it printed\n%s", err, out.String())
	}
}
