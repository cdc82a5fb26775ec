package figures_test

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/metrics/internal/figures"
)

// counted returns stats whose fields differ, and their values by the fields' names. Durations are
// whole seconds. It leaves out histograms and errors.
func counted() (stats lockd.Stats, values map[string]float64) {
	values = make(map[string]float64)
	for _, of := range []any{&stats, &stats.Ends, &stats.Commits} {
		fields := reflect.ValueOf(of).Elem()
		for i := range fields.NumField() {
			n := len(values) + 2 // neither of the values of up
			switch name, field := fields.Type().Field(i).Name, fields.Field(i); {
			case field.Type().String() == "time.Duration":
				field.SetInt(int64(n) * 1e9)
				values[name] = float64(n)
			case field.CanInt():
				field.SetInt(int64(n))
				values[name] = float64(n)
			case field.CanUint():
				field.SetUint(uint64(n))
				values[name] = float64(n)
			}
		}
	}
	return stats, values
}

// Ensure that each figure is read from the field that its name or its cause means: an end of one
// cause is not counted under another.
func TestFigures_ReadTheirFields(t *testing.T) {
	fields := map[string]string{
		"index": "Index", "keys": "Keys", "sessions": "Sessions", "locks": "Locks",
		"shares": "Shares", "waiters": "Waiters", "watchers": "Watchers",
		"file_size_bytes": "FileSize", "commit_last_seconds": "Last", "commit_max_seconds": "Max",
		"grants_total": "Grants", "waits_given_up_total": "GaveUp",
		"commit_writers_total": "Writers", "commit_failures_total": "Failed",
		"log_records_dropped_total": "LogDrops",
		"closed":                    "Closed", "expired": "Expired", "destroyed": "Destroyed",
		"node_gone": "NodeGone", "check_gone": "CheckGone", "check_critical": "CheckCritical",
		"process_gone": "ProcessGone", "restored": "Restored", "unlocked": "Unlocked",
		"key_deleted": "KeyDeleted", "forced": "Forced", "held_too_long": "HeldTooLong",
	}
	stats, values := counted()
	values["up"], fields["up"] = 1, "up"
	for _, figure := range figures.All() {
		for _, value := range figure.Values {
			name := strings.TrimPrefix(figure.Name, "lockd_")
			if value.Cause != "" {
				name = value.Cause
			}
			want, known := values[fields[name]]
			if got := value.Of(&stats); got != want || !known {
				t.Errorf("%s: got %v, want %v of field %q", name, got, want, fields[name])
			}
		}
	}
	for _, h := range figures.Histograms() {
		want := map[string]*lockd.Histogram{
			"lockd_lock_wait_seconds": &stats.LockWaits,
			"lockd_lock_hold_seconds": &stats.LockHolds,
			"lockd_slot_wait_seconds": &stats.SlotWaits,
			"lockd_slot_hold_seconds": &stats.SlotHolds,
		}[h.Name]
		if got := h.Of(&stats); got != want {
			t.Errorf("%s is read from another histogram", h.Name)
		}
	}
	stats.Err = errors.New("the disk is gone")
	if up := figures.All()[0]; up.Name != "lockd_up" || up.Values[0].Of(&stats) != 0 {
		t.Errorf("%s of a database that has failed: got %v", up.Name, up.Values[0].Of(&stats))
	}
}

// Ensure that the table of doc/operations.md has every figure by its name.
func TestFigures_AreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../doc/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{figures.CommitDuration}
	for _, figure := range figures.All() {
		names = append(names, figure.Name)
	}
	for _, histogram := range figures.Histograms() {
		names = append(names, histogram.Name)
	}
	rows := ""
	for line := range strings.SplitSeq(string(text), "\n") {
		if strings.HasPrefix(line, "| `") {
			rows += line
		}
	}
	for _, name := range names {
		if name = strings.TrimPrefix(name, "lockd_"); !strings.Contains(rows, "`"+name+"`") {
			t.Errorf("the table of the figures has no row for %s", name)
		}
	}
}
