// Package report shows figures and says which targets they meet.
package report

import "fmt"

// Report is everything that one run found. The zero value is an empty one.
type Report struct {
	Command  string   // what was run; empty: it is not said
	Machine  []string // what it ran on, a line each
	Settings []string // of lockd and of each rival, a line each
	Notes    []string // what else was found out, such as a sweep
	Rows     []Row    // in the order of the targets
}

// Verdict is what became of one target.
type Verdict struct {
	Target string
	Met    bool
}

// Verdicts returns one verdict for each target, in the order of the rows. A target is met if it has
// a row that asks for something and was measured, and all such rows are met.
func (r *Report) Verdicts() []Verdict {
	var verdicts []Verdict
	judged := make(map[string]int)
	missed := make(map[string]bool)
	for i := range r.Rows {
		row := &r.Rows[i]
		if _, known := judged[row.Target]; !known {
			judged[row.Target] = 0
			verdicts = append(verdicts, Verdict{Target: row.Target})
		}
		if row.judged() {
			judged[row.Target]++
			missed[row.Target] = missed[row.Target] || !row.Met()
		}
	}
	for i := range verdicts {
		target := verdicts[i].Target
		verdicts[i].Met = judged[target] > 0 && !missed[target]
	}
	return verdicts
}

// Missed returns the targets that are not met.
func (r *Report) Missed() []string {
	var missed []string
	for _, v := range r.Verdicts() {
		if !v.Met {
			missed = append(missed, v.Target)
		}
	}
	return missed
}

// Closing is the line that a run ends with.
func (r *Report) Closing() string {
	missed := len(r.Missed())
	return fmt.Sprintf("targets: %d met, %d missed", len(r.Verdicts())-missed, missed)
}
