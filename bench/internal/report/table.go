package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// header names the columns: what the target is about comes first.
var header = []string{"target", "", "median", "worst", "asked", "lockd", "rival", "", "what"}

// rightAligned says which columns are figures, which stand under each other by their ends.
var rightAligned = []bool{false, false, true, true, true, true, true, false, false}

// WriteTable writes the report as text: command, machine, settings, notes, a line for each row, and
// at the end the targets that were missed, what was asked for and not measured, and the closing
// line.
func (r *Report) WriteTable(w io.Writer) error {
	var text strings.Builder
	if r.Command != "" {
		section(&text, "command", []string{r.Command})
	}
	section(&text, "machine", r.Machine)
	section(&text, "settings", r.Settings)
	section(&text, "notes", r.Notes)
	lines := [][]string{header}
	for i := range r.Rows {
		lines = append(lines, r.Rows[i].cells())
	}
	columns(&text, lines)
	text.WriteString("\n")
	r.explain(&text)
	text.WriteString(r.Closing() + "\n")
	_, err := io.WriteString(w, text.String())
	return err
}

// explain writes why each target is missed, and what has decided nothing.
func (r *Report) explain(text *strings.Builder) {
	for _, target := range r.Missed() {
		measured := false
		for i := range r.Rows {
			row := &r.Rows[i]
			if row.Target != target || !row.judged() {
				continue
			}
			measured = true
			if !row.Met() {
				fmt.Fprintf(text, "missed: %s %s: %s, worst %s, asked %s\n", target, row.What,
					figure(row.Figure.Median(), row.Unit),
					figure(row.Bound.Worst(row.Figure), row.Unit), row.asked())
			}
		}
		if !measured {
			fmt.Fprintf(text, "missed: %s: nothing was measured\n", target)
		}
	}
	for i := range r.Rows {
		if row := &r.Rows[i]; row.Missing != "" && row.Bound.Asked() {
			fmt.Fprintf(text, "not measured: %s %s: %s\n", row.Target, row.What, row.Missing)
		}
	}
}

func section(text *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	text.WriteString(title + "\n")
	for _, line := range lines {
		text.WriteString("  " + line + "\n")
	}
	text.WriteString("\n")
}

// cells is the row as the table shows it.
func (r *Row) cells() []string {
	if r.Missing != "" {
		return []string{r.Target, "", "-", "-", r.asked(), "", "", r.Rival,
			r.What + ": not measured, " + r.Missing}
	}
	verdict := ""
	switch {
	case r.judged() && r.Met():
		verdict = "met"
	case r.judged():
		verdict = "MISSED"
	}
	cells := []string{r.Target, verdict,
		figure(r.Figure.Median(), r.Unit), figure(r.Bound.Worst(r.Figure), r.Unit), r.asked(),
		"", "", r.Rival, r.What}
	if r.Ours != nil {
		cells[5] = figure(r.Ours.Median(), Nanoseconds)
	}
	if r.Theirs != nil {
		cells[6] = figure(r.Theirs.Median(), Nanoseconds)
	}
	return cells
}

func (r *Row) asked() string {
	if !r.Bound.Asked() {
		return ""
	}
	return r.Bound.Sign() + " " + figure(r.Bound.Limit(), r.Unit)
}

// columns writes the lines under each other.
func columns(text *strings.Builder, lines [][]string) {
	widths := make([]int, len(header))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, line := range lines {
		var out strings.Builder
		for i, cell := range line {
			if i > 0 {
				out.WriteString("  ")
			}
			padding := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if rightAligned[i] {
				out.WriteString(padding + cell)
			} else {
				out.WriteString(cell + padding)
			}
		}
		text.WriteString(strings.TrimRight(out.String(), " ") + "\n")
	}
}
