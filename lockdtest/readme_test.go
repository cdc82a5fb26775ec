package lockdtest_test

import (
	"os"
	"strings"
	"testing"
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
