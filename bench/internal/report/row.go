package report

import (
	"math"
	"strconv"

	"github.com/lockd/lockd/bench/internal/measure"
)

// Unit is what a figure counts. The zero value is a ratio.
type Unit uint8

// The units.
const (
	Ratio       Unit = iota // shown with a ×
	Nanoseconds             // shown as ns, µs, ms or s
	Bytes                   // shown as B, kB or MB
	Count                   // shown as it is
)

// Row is one figure of a target: what lockd did, mostly beside a rival, and what is asked of it.
type Row struct {
	Target string // such as P1
	What   string

	Figure measure.Series // what the target is about, most often a ratio
	Unit   Unit           // of Figure
	Bound  measure.Bound  // the zero value: shown for information, and asked for nothing

	Ours, Theirs measure.Series // what a ratio was made of, in nanoseconds; nil: nothing else
	Rival        string         // whose Theirs is

	Missing string // why nothing was measured; empty if it was
}

// Met reports whether the row has what its target asks for.
func (r *Row) Met() bool { return r.Bound.Met(r.Figure) }

// judged reports whether the row counts for its target.
func (r *Row) judged() bool { return r.Missing == "" && r.Bound.Asked() }

// figure writes a value of the unit, and a dash for none.
func figure(value float64, unit Unit) string {
	if math.IsNaN(value) {
		return "-"
	}
	switch unit {
	case Nanoseconds:
		return scaled(value, 1000, "ns", "µs", "ms", "s")
	case Bytes:
		return scaled(value, 1000, "B", "kB", "MB", "GB")
	case Count:
		return digits(value)
	}
	return digits(value) + " ×"
}

// scaled writes a value in the largest unit that leaves at least one of it.
func scaled(value, step float64, units ...string) string {
	i := 0
	for math.Abs(value) >= step && i < len(units)-1 {
		value /= step
		i++
	}
	return digits(value) + " " + units[i]
}

// digits writes three significant digits, and all before the point.
func digits(value float64) string {
	decimals := 2
	switch size := math.Abs(value); {
	case size >= 100 || value == math.Trunc(value):
		decimals = 0
	case size >= 10:
		decimals = 1
	}
	return strconv.FormatFloat(value, 'f', decimals, 64)
}
