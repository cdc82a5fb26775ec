package measure

import (
	"math"
	"slices"
)

// Tolerance is the factor by which the worst round may miss the target.
const Tolerance = 1.25

// Bound is a target: what a figure has to keep to. The zero value asks for nothing.
type Bound struct {
	side  side
	limit float64
}

type side uint8

const (
	nothing side = iota
	atMost
	atLeast
	large // nothing is asked, but more is better
)

// AtMost is a target for what should be small.
func AtMost(limit float64) Bound { return Bound{atMost, limit} }

// AtLeast is a target for what should be large.
func AtLeast(limit float64) Bound { return Bound{atLeast, limit} }

// Large asks for nothing of what should be large.
func Large() Bound { return Bound{side: large} }

// Asked reports whether there is a target.
func (b Bound) Asked() bool { return b.side == atMost || b.side == atLeast }

// Limit is the target's figure.
func (b Bound) Limit() float64 { return b.limit }

// Sign is how the target is written before its figure.
func (b Bound) Sign() string { return [...]string{"", "≤", "≥", ""}[b.side] }

// Worst returns the figure of the worst round: the lowest, if the figure should be large, and else
// the highest. It is NaN if there are no rounds.
func (b Bound) Worst(s Series) float64 {
	switch {
	case len(s) == 0:
		return math.NaN()
	case b.side == atLeast, b.side == large:
		return slices.Min(s)
	}
	return slices.Max(s)
}

// Met reports whether the median meets the target and the worst round is within Tolerance of it. A
// series without rounds, or with a figure that is NaN, meets no target.
func (b Bound) Met(s Series) bool {
	median, worst := s.Median(), b.Worst(s)
	switch b.side {
	case atMost:
		return median <= b.limit && worst <= b.limit*Tolerance
	case atLeast:
		return median >= b.limit && worst >= b.limit/Tolerance
	}
	return true
}
