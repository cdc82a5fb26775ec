package lockdui

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/lockd/lockd"
)

// fileView is the content of the page of the file.
type fileView struct {
	Stats    lockd.Stats
	Readings []reading
	Ends     []count
	Memory   bool // there is no file
}

func (fileView) template() string { return "file" }

// count is how often something happened, or how much there is.
type count struct {
	Name  string
	Count uint64
}

// file makes the page of the file.
func (h *handler) file(_ *http.Request, now time.Time) (content, error) {
	stats := h.db.Stats()
	h.meter.note(now, stats)
	v := fileView{Stats: stats, Readings: h.meter.all(), Memory: h.memory}
	ends := v.Stats.Ends
	v.Ends = []count{
		{"sessions closed by their owners", ends.Closed},
		{"sessions not renewed in time", ends.Expired},
		{"sessions ended from outside", ends.Destroyed},
		{"sessions whose process was gone", ends.ProcessGone},
		{"sessions whose node was removed", ends.NodeGone},
		{"sessions whose check was removed", ends.CheckGone},
		{"sessions whose check became critical", ends.CheckCritical},
		{"sessions ended by a restore", ends.Restored},
		{"locks released by their holders", ends.Unlocked},
		{"locks whose key was deleted", ends.KeyDeleted},
		{"locks taken away by force", ends.Forced},
		{"locks held for their MaxHold", ends.HeldTooLong},
	}
	return v, nil
}

// Rate is the number of commits per second between the first and the last reading.
func (v fileView) Rate() string {
	first, last := v.Readings[0], v.Readings[len(v.Readings)-1]
	span := last.At.Sub(first.At)
	if span <= 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", float64(last.Commits-first.Commits)/span.Seconds())
}

// Span is the time between the first and the last reading.
func (v fileView) Span() string {
	return period(v.Readings[len(v.Readings)-1].At.Sub(v.Readings[0].At))
}

// Batch is the mean number of calls that waited for one commit.
func (v fileView) Batch() string {
	if v.Stats.Commits.Count == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", float64(v.Stats.Commits.Writers)/float64(v.Stats.Commits.Count))
}

// Mean is the mean time that a commit took.
func (v fileView) Mean() time.Duration {
	return v.Stats.Commits.Total / time.Duration(max(1, v.Stats.Commits.Count))
}

// The size of the curve, as its template has it.
const (
	curveWidth  = 600.0
	curveHeight = 80.0
)

// Curve is the rate of commits from each reading to the next, as points of a polyline; empty if
// there are too few readings. Top is the highest rate.
func (v fileView) Curve() (points struct{ Points, Top string }) {
	if len(v.Readings) < 3 {
		return points
	}
	var rates []float64
	top := 0.0
	for i, r := range v.Readings[1:] {
		before := v.Readings[i]
		rate := float64(r.Commits-before.Commits) / r.At.Sub(before.At).Seconds()
		rates = append(rates, rate)
		top = max(top, rate)
	}
	first := v.Readings[1].At
	span := v.Readings[len(v.Readings)-1].At.Sub(first).Seconds()
	var text strings.Builder
	for i, rate := range rates {
		x := v.Readings[i+1].At.Sub(first).Seconds() / span * curveWidth
		y := curveHeight - rate/max(top, 1)*(curveHeight-4) - 2
		fmt.Fprintf(&text, "%.1f,%.1f ", x, y)
	}
	points.Points, points.Top = text.String(), fmt.Sprintf("%.0f", top)
	return points
}
