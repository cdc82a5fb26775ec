package figures_test

import (
	"os"
	"strings"
	"testing"

	"github.com/lockd/lockd/metrics/internal/figures"
)

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
