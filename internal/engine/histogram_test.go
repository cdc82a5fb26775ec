package engine_test

import (
	"testing"
	"time"

	"github.com/lockd/lockd/internal/engine"
)

// Ensure that a sum which no Duration could hold is exact, to what a float has of it.
func TestHistogram_SumOfVeryMany(t *testing.T) {
	var h engine.Histogram
	const century = 100 * 365 * 24 * time.Hour
	for range 1000 {
		h.Add(century + time.Second/2)
	}
	if want := 1000 * (century + time.Second/2).Seconds(); h.Seconds() != want {
		t.Errorf("got %v s, want %v", h.Seconds(), want)
	}
	if last := h.Buckets[len(h.Buckets)-1]; last != 1000 {
		t.Errorf("the last bucket: got %d, want 1000", last)
	}
}
