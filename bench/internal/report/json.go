package report

import (
	"encoding/json"
	"io"
	"math"
)

// document is the report in the form that programs read. Times are in nanoseconds.
type document struct {
	Command  string   `json:"command,omitempty"`
	Machine  []string `json:"machine"`
	Settings []string `json:"settings"`
	Notes    []string `json:"notes,omitempty"`
	Rows     []object `json:"rows"`
	Met      int      `json:"met"`
	Missed   []string `json:"missed"`
	Closing  string   `json:"closing"`
}

type object struct {
	Target  string    `json:"target"`
	What    string    `json:"what"`
	Rival   string    `json:"rival,omitempty"`
	Unit    string    `json:"unit"`
	Median  *float64  `json:"median,omitempty"`
	Worst   *float64  `json:"worst,omitempty"`
	Rounds  []float64 `json:"rounds,omitempty"`
	Bound   string    `json:"bound,omitempty"`
	Limit   *float64  `json:"limit,omitempty"`
	Met     *bool     `json:"met,omitempty"`
	Ours    *float64  `json:"lockd_ns,omitempty"`
	Theirs  *float64  `json:"rival_ns,omitempty"`
	Missing string    `json:"not_measured,omitempty"`
}

// WriteJSON writes the report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	missed := r.Missed()
	doc := document{
		Command: r.Command, Machine: r.Machine, Settings: r.Settings, Notes: r.Notes,
		Rows: make([]object, len(r.Rows)),
		Met:  len(r.Verdicts()) - len(missed), Missed: append([]string{}, missed...),
		Closing: r.Closing(),
	}
	for i := range r.Rows {
		doc.Rows[i] = r.Rows[i].object()
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(doc)
}

func (r *Row) object() object {
	o := object{
		Target: r.Target, What: r.What, Rival: r.Rival, Missing: r.Missing,
		Unit:   [...]string{"ratio", "ns", "B", "count"}[r.Unit],
		Median: number(r.Figure.Median()), Worst: number(r.Bound.Worst(r.Figure)),
		Rounds: r.Figure, Bound: r.Bound.Sign(),
		Ours: number(r.Ours.Median()), Theirs: number(r.Theirs.Median()),
	}
	if r.Bound.Asked() {
		o.Limit = number(r.Bound.Limit())
	}
	if r.judged() {
		met := r.Met()
		o.Met = &met
	}
	return o
}

// number is a value as JSON can have it.
func number(value float64) *float64 {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return nil
	}
	return &value
}
