package report_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/bench/internal/report"
)

// sample has a row of every kind: P1 is met, P2 is missed, P3 is met as far as it was measured, and
// P4 was not measured.
func sample() *report.Report {
	return &report.Report{
		Machine: []string{"a computer"}, Settings: []string{"rival: fast"},
		Notes: []string{"a sweep"},
		Rows: []report.Row{
			{Target: "P1", What: "pair", Figure: measure.Series{1.5, 1.25, 2.25},
				Bound: measure.AtMost(2), Rival: "raw btree",
				Ours: measure.Series{1500, 1250, 2250}, Theirs: measure.Series{1000, 1000, 1000}},
			{Target: "P1", What: "pair", Figure: measure.Series{40}, Rival: "a mutex"},
			{Target: "P2", What: "Get", Figure: measure.Series{0.5, 0.5, 0.5},
				Bound: measure.AtMost(0.6)},
			{Target: "P2", What: "writes per commit", Figure: measure.Series{430, 340, 460},
				Unit: report.Count, Bound: measure.AtLeast(430)},
			{Target: "P3", What: "expiry", Figure: measure.Series{9e8}, Unit: report.Nanoseconds,
				Bound: measure.AtMost(1e9)},
			{Target: "P3", What: "pair", Bound: measure.AtLeast(3), Rival: "Redis",
				Missing: "no server"},
			{Target: "P4", What: "file", Bound: measure.AtMost(16e6), Unit: report.Bytes,
				Missing: "no disk"},
		},
	}
}

func TestVerdicts(t *testing.T) {
	got := sample().Verdicts()
	want := []report.Verdict{{"P1", true}, {"P2", false}, {"P3", true}, {"P4", false}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := sample().Missed(); !slices.Equal(got, []string{"P2", "P4"}) {
		t.Errorf("missed: got %v", got)
	}
}

func TestWriteTable_BeginsWithTheCommand(t *testing.T) {
	r := sample()
	r.Command = "go run ./bench"
	var text strings.Builder
	if err := r.WriteTable(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(text.String(), "command\n  go run ./bench\n\nmachine\n") {
		t.Errorf("got %s", text.String())
	}
}

func TestWriteTable(t *testing.T) {
	var text strings.Builder
	if err := sample().WriteTable(&text); err != nil {
		t.Fatal(err)
	}
	want := `machine
  a computer

settings
  rival: fast

notes
  a sweep

target          median   worst     asked    lockd  rival             what
P1      met     1.50 ×  2.25 ×     ≤ 2 ×  1.50 µs   1 µs  raw btree  pair
P1                40 ×    40 ×                            a mutex    pair
P2      met     0.50 ×  0.50 ×  ≤ 0.60 ×                             Get
P2      MISSED     430     340     ≥ 430                             writes per commit
P3      met     900 ms  900 ms     ≤ 1 s                             expiry
P3                   -       -     ≥ 3 ×                  Redis      pair: not measured, no server
P4                   -       -   ≤ 16 MB                             file: not measured, no disk

missed: P2 writes per commit: 430, worst 340, asked ≥ 430
missed: P4: nothing was measured
not measured: P3 pair: no server
not measured: P4 file: no disk
targets: 2 met, 2 missed
`
	if got := text.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestWriteJSON(t *testing.T) {
	var text strings.Builder
	if err := sample().WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rows []struct {
			Target, What, Unit, Bound string
			Median, Worst, Limit      *float64
			Rounds                    []float64
			Met                       *bool
			Lockd                     *float64 `json:"lockd_ns"`
			Rival                     *float64 `json:"rival_ns"`
			NotMeasured               string   `json:"not_measured"`
		}
		Met     int
		Missed  []string
		Closing string
	}
	if err := json.Unmarshal([]byte(text.String()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Met != 2 || !slices.Equal(got.Missed, []string{"P2", "P4"}) {
		t.Errorf("met %d, missed %v", got.Met, got.Missed)
	}
	if want := "targets: 2 met, 2 missed"; got.Closing != want {
		t.Errorf("got %q, want %q", got.Closing, want)
	}
	first := got.Rows[0]
	if *first.Median != 1.5 || *first.Worst != 2.25 || *first.Limit != 2 || !*first.Met ||
		*first.Lockd != 1500 || *first.Rival != 1000 || first.Bound != "≤" ||
		first.Unit != "ratio" || len(first.Rounds) != 3 {
		t.Errorf("first row: got %s", text.String())
	}
	if row := got.Rows[1]; row.Met != nil || row.Limit != nil || row.Lockd != nil {
		t.Errorf("a row that is asked for nothing: %+v", row)
	}
	if row := got.Rows[5]; row.Met != nil || row.Median != nil || row.NotMeasured == "" {
		t.Errorf("a row that was not measured: %+v", row)
	}
}

func TestReport_OfNothing(t *testing.T) {
	var empty report.Report
	if got, want := empty.Closing(), "targets: 0 met, 0 missed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
