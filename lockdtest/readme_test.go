package lockdtest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdtest"
)

// Ensure that the README shows the lines of the Example.
func TestREADME_LateWrite(t *testing.T) {
	example, err := os.ReadFile("example_test.go")
	must(t, err)
	readme, err := os.ReadFile("../README.md")
	must(t, err)
	_, rest, _ := strings.Cut(string(example), "defer t.end()\n\n")
	lines, _, found := strings.Cut(rest, "\n\n\tfmt.Println")
	if want := "```go\nfunc TestLateWrite(t *testing.T) {\n" + lines + "\n}\n```"; !found ||
		!strings.Contains(string(readme), want) {
		t.Errorf("README.md does not have\n%s", want)
	}
}

// Ensure that TestReports fails, as the README says, if it writes by a plain Put.
func TestREADME_Reports(t *testing.T) {
	found := lockdtest.Search(t, nil, reports(
		func(db *lockd.DB, _ lockd.Sequencer, report []byte) error {
			_, err := db.Put("report", report, nil)
			return err
		}))
	for _, want := range []string{"reports get newer: report 1 comes after", "stands still"} {
		if !strings.Contains(found.Text, want) {
			t.Errorf("no %q in\n%s", want, found.Text)
		}
	}
}
