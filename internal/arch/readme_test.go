package arch_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	goCommand = regexp.MustCompile(`\bgo (?:run|test|build|vet|install)\b[^\n` + "`" + `]*`)
	mdLink    = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
)

func TestREADME(t *testing.T) {
	report(t, checkDocument("README.md", document(t, "README.md"), func(name string) bool {
		_, err := os.Stat(filepath.Join(rootDir, filepath.FromSlash(name)))
		return err == nil
	}))
}

// checkDocument finds the folders of go commands, and the files that links lead to, that do not
// exist.
func checkDocument(name, text string, exists func(string) bool) []finding {
	var findings []finding
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		for _, command := range goCommand.FindAllString(line, -1) {
			for word := range strings.FieldsSeq(command) {
				dir, ok := strings.CutPrefix(strings.TrimRight(word, ".,;:"), "./")
				dir = strings.TrimSuffix(dir, "/")
				if ok && dir != "" && !exists(dir) {
					findings = append(findings, finding{name, n,
						"names ./" + dir + ", which is not there: mend the command"})
				}
			}
		}
		for _, link := range mdLink.FindAllStringSubmatch(line, -1) {
			if !strings.Contains(link[1], ":") && !exists(strings.TrimSuffix(link[1], "/")) {
				findings = append(findings, finding{name, n,
					"links to " + link[1] + ", which is not there: mend the link"})
			}
		}
	}
	return findings
}

func TestREADME_Reports(t *testing.T) {
	const text = "Run `go test ./...` and\n\n" +
		"    go run ./examples/gone -v\n" +
		"    go run ./examples/leader\n" +
		"or `go test ./store/...`, see [it](doc/it.md#part), [x](doc/gone.md) and [y](https://a.b).\n"
	exists := func(name string) bool {
		return name == "examples/leader" || name == "store" || name == "doc/it.md"
	}
	expect(t, checkDocument("README.md", text, exists),
		"README.md:3: names ./examples/gone",
		"README.md:5: links to doc/gone.md",
	)
}
