package engine_test

import (
	"math"
	"testing"
	"time"

	"github.com/lockd/lockd/internal/engine"
)

// Ensure that a sum that is too large for a Duration is exact, within the precision of a float.
func TestHistogram_SumOfVeryMany(t *testing.T) {
	var h engine.Histogram
	const century time.Duration = 100 * 365 * 24 * time.Hour
	for range 1000 {
		h.Add(century + time.Second/2)
	}
	if want := 1000 * (century + time.Second/2).Seconds(); h.Seconds != want {
		t.Errorf("got %v s, want %v", h.Seconds, want)
	}
	var long engine.Histogram
	for _, took := range []time.Duration{century + century/2, 2*century + century/10*9} {
		long.Add(took)
	}
	if want := 4.4 * century.Seconds(); math.Abs(long.Seconds-want) > 1 {
		t.Errorf("got %v s, want %v", long.Seconds, want)
	}
	if last := h.Buckets[len(h.Buckets)-1]; last != 1000 {
		t.Errorf("the last bucket: got %d, want 1000", last)
	}
}
