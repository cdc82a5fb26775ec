package arch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// stanzasDir has the rules by example: files of commands and what they answer.
const stanzasDir = "internal/engine/testdata"

// stanzaHead begins a stanza: the numbers of the rules and promises that it shows.
var stanzaHead = regexp.MustCompile(`(?m)^# ([A-Z][1-9][0-9]?(?:, [A-Z][1-9][0-9]?)*):`)

// Ensure that the document of the rules leads to the stanzas, and the stanzas to rules.
func TestRuleNumbers_LeadToStanzas(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(rootDir, filepath.FromSlash(stanzasDir), "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: no files found: %v", stanzasDir, err)
	}
	stanzas := make(map[string]string)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		stanzas[strings.TrimSuffix(filepath.Base(file), ".txt")] = string(text)
	}
	promises := statements(promiseStatement, promisesInDoc(module(t)))
	report(t, checkStanzas(document(t, semanticsDoc), stanzas, promises))
}

// checkStanzas compares the links of the document with the heads of the stanzas, by the names of
// their files.
func checkStanzas(doc string, stanzas map[string]string, promises map[string]int) []finding {
	links := make(map[string]string) // from a rule to a file
	for _, m := range ruleStatement.FindAllStringSubmatch(doc, -1) {
		links[m[1]] = m[2]
	}
	var findings []finding
	add := func(path, format string, args ...any) {
		findings = append(findings, finding{path: path, text: fmt.Sprintf(format, args...)})
	}
	shown := make(map[string][]string) // the files of a rule
	for name, text := range stanzas {
		file := stanzasDir + "/" + name + ".txt"
		if !strings.Contains(doc, "\n["+name+"]: ../"+file+"\n") {
			add(semanticsDoc, "does not say where [%s] leads: to %s", name, file)
		}
		for _, head := range stanzaHead.FindAllStringSubmatch(text, -1) {
			for number := range strings.SplitSeq(head[1], ", ") {
				shown[number] = append(shown[number], name)
				if _, stated := links[number]; !stated && promises[number] == 0 {
					add(file, "has a stanza for %s, which is not stated: mend the number", number)
				}
			}
		}
	}
	for rule, file := range links {
		switch files := shown[rule]; {
		case file == "" && len(files) > 0:
			add(semanticsDoc, "states %s without a link to a stanza: write **[%s][%s]**", rule,
				rule, slices.Min(files))
		case file != "" && !slices.Contains(files, file):
			add(semanticsDoc, "links %s to %s, which has no stanza for it: mend the link", rule,
				file)
		}
	}
	return findings
}

func TestRuleNumbers_LeadToStanzas_Reports(t *testing.T) {
	const doc = "- **[K1][kv]** a\n- **K2** b\n| **[M3][kv]** | c |\n- **K4** d\n\n" +
		"[kv]: ../internal/engine/testdata/kv.txt\n"
	expect(t, checkStanzas(doc, map[string]string{
		"kv":   "# K1, G1: shown\nput k v\n----\n\n# K2: shown\n\n# K7, G2: not stated\n",
		"lock": "# K1: also here\n# not a head\n",
	}, map[string]int{"G1": 1}),
		"kv.txt: has a stanza for K7",
		"kv.txt: has a stanza for G2",
		"states K2 without a link to a stanza: write **[K2][kv]**",
		"links M3 to kv",
		"does not say where [lock] leads",
	)
}
