package measure

import (
	"math"
	"slices"
)

// Series is one figure as each round found it. The zero value has no rounds.
type Series []float64

// Median returns the middle figure, the mean of the two middle ones of an even number, and NaN if
// there are no rounds.
func (s Series) Median() float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Percentile returns the figure that the given part of all, between 0 and 1, do not exceed. It is
// NaN if there are none.
func (s Series) Percentile(part float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(part * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Over returns the ratio of each round of s to the same round of t. Both must have as many rounds.
func (s Series) Over(t Series) Series {
	if len(s) != len(t) {
		panic("measure: series of different numbers of rounds")
	}
	ratios := make(Series, len(s))
	for i := range s {
		ratios[i] = s[i] / t[i]
	}
	return ratios
}

// Minus returns the difference of each round of s to the same round of t. Both must have as many
// rounds.
func (s Series) Minus(t Series) Series {
	if len(s) != len(t) {
		panic("measure: series of different numbers of rounds")
	}
	differences := make(Series, len(s))
	for i := range s {
		differences[i] = s[i] - t[i]
	}
	return differences
}
