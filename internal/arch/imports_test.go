package arch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	bbolt  = "go.etcd.io/bbolt"
	btree  = "github.com/google/btree"
	clock  = "github.com/benbjohnson/clock"
	uuid   = "github.com/google/uuid"
	cli    = "github.com/urfave/cli/v3"
	rapid  = "pgregory.net/rapid"
	goleak = "go.uber.org/goleak"
	driven = "github.com/cockroachdb/datadriven"
	prom   = "github.com/prometheus/client_golang/prometheus"
	consul = "github.com/hashicorp/consul/api"
)

// edges says what a package may import, and why: packages of this module by their folder, others by
// their path. Every package may import the standard library, except package testing.
type edges map[string]string

// importPlan has every package of the module. Arrows go down only:
//
//	cmd, examples, lockdtest, consulapi, lockdui → the root: handles, options, recipes
//	the root → catalog: what go doc shows of nodes, services, checks and attachments
//	the root → internal/writer: the one way to write
//	internal/writer → internal/engine: the rules
//	internal/engine → internal/{expiry,hub,waitq}, store
//	store → store/internal/{table,file} → store/internal/format → internal/schema
//
// Packages side by side do not import each other. An arrow that is missing here is a decision to
// take, not a line to add.
var importPlan = map[string]edges{
	".": {
		"catalog":           "Txn.Catalog and Snapshot.Catalog; the causes that a Keeper waits out",
		"internal/engine":   "the rules, and what they know of a handle",
		"internal/writer":   "the one way to write",
		"store":             "opens the file; what reads rows; backups",
		"internal/schema":   "the rows of the tables",
		"internal/ending":   "how sessions, locks and keepers tell their ends",
		"internal/expiry":   "the limits of Wait",
		"internal/hub":      "wakes those who watch a scope",
		"internal/hook":     "what tests reach; on no other clock than theirs",
		"internal/logger":   "hands records to Options.Logger",
		"internal/callsite": "where a lock was taken; nothing but in a build to debug",
		clock:               "Options.Clock, which the writer reads",
		uuid:                "new session IDs: the rules have nothing random",
	},
	"catalog": {
		".":               "its examples: a database",
		"internal/engine": "the rules of the catalog, and its errors",
		"internal/schema": "the rows of the tables",
		"store":           "the rows of a snapshot",
	},
	"internal/writer": {
		"internal/engine": "what it runs, takes, publishes and drops",
		"internal/expiry": "the one timer",
		"internal/hook":   "whose turn it is in a test, asked where the writer would wait",
		clock:             "read in one place, see TestClock",
	},
	"internal/engine": {
		"internal/expiry": "the heap of deadlines; not its alarm",
		"internal/hub":    "the type of an event; nothing is called",
		"internal/schema": "the rows of the tables",
		"internal/waitq":  "the calls that wait for a key, in order",
		"store":           "the tables, and one batch after the other",
	},
	"internal/schema": {
		uuid: "the text form of an ID",
	},
	"store": {
		"internal/schema":       "its tests: rows",
		"store/internal/file":   "where batches go, and rows come from",
		"store/internal/format": "what the two hand each other",
		"store/internal/table":  "the rows in memory",
	},
	"store/internal/table": {
		"internal/schema":       "the rows of the tables",
		"store/internal/format": "what a batch is encoded in, and what is read",
		btree:                   "the order of keys",
		"store":                 "its tests: rows that are read from a file",
	},
	"store/internal/file": {
		"internal/schema":       "the rows of a backup; the limits of a file",
		"store/internal/format": "the checksums of rows; those of a backup",
		bbolt:                   "the file; no other package knows how rows get there",
		bbolt + "/errors":       "to tell bbolt's timeout from its other errors",
		btree:                   "the order of the rows of the log",
		"store":                 "its tests: what a database writes",
	},
	"store/internal/format": {
		"internal/schema": "the rows of the tables",
	},
	"internal/expiry": {
		clock: "arms the one timer",
	},
	"internal/logger": {
		"internal/expiry": "the alarm of an Update that is slow",
		clock:             "arms that alarm",
	},
	"internal/callsite": {},
	"internal/ending":   {},
	"internal/hub":      {},
	"internal/waitq":    {},
	"internal/arch":     {},
	"cmd/lockd": {
		".":                             "the database that it serves; the files",
		"consulapi":                     "what it serves",
		"lockdui":                       "the pages beside it",
		"cmd/lockd/internal/lockclient": "what it asks a server",
		"metrics/prometheus":            "the metrics of the database",
		cli:                             "command lines and their help",
		"github.com/mattn/go-isatty":    "whether the input is a terminal",
		consul:                          "keys and sessions of a server",
		prom:                            "the metrics of the server",
		prom + "/collectors":            "the metrics of its process",
		prom + "/promhttp":              "how they are served",
	},
	"cmd/lockd/internal/lockclient": {
		".":         "the names of the modes; its tests: a server's database",
		"consulapi": "its tests: a server",
		consul:      "the client that it adds to",
	},
	"metrics/internal/figures": {
		".": "the stats, as a user has them; the exporters are modules of their own",
	},
	"internal/hook": {
		"store": "the hooks around what is written to a file",
		clock:   "hooks and controls come with the clock",
	},
	"test": {
		".":               "the database under test",
		"catalog":         "its nodes, services and checks",
		"consulapi":       "the model asks it for keys that are shared",
		"internal/engine": "the rules alone: the model test has them too, see TestModel_Engine",
		"internal/hook":   "what a test may see and do that users may not",
		"lockdtest":       "Explore: the promises in many orders",
		"internal/schema": "rows that no call would write, in a file or a backup",
		"store":           "the hooks around what is written to a file",
		uuid:              "IDs of sessions that do not exist",
	},
	"lockdtest": {
		".":             "the database under test",
		"internal/hook": "faults, and waiting until all is told",
		clock:           "the mock that it moves",
	},
	"consulapi": {
		".":         "what a user has, and nothing else of the module: that proves it complete",
		"catalog":   "what a user has too",
		"lockdtest": "its tests: commits that are held, or fail",
		uuid:        "the ID of a node that has none",
	},
	"examples/cache": {
		".": "what a user has, and nothing else of the module",
	},
	"examples/stuck": {
		".": "what a user has, and nothing else of the module",
	},
	"lockdui": {
		".":         "what a user has, and nothing else of the module: that proves it complete",
		"lockdtest": "its tests: a clock that they move, commits that fail",
	},
	"examples/daily": {
		".": "what a user has, and nothing else of the module",
	},
	"examples/leader": {
		".": "what a user has, and nothing else of the module",
	},
	"examples/registration": {
		".": "what a user has, and nothing else of the module",
	},
	"examples/workers": {
		".": "what a user has, and nothing else of the module",
	},
}

// testEdges lists what the tests of every package may import, besides the package itself and what
// the package may import.
var testEdges = edges{
	clock:  "the mock",
	rapid:  "random operations",
	goleak: "no goroutine is left behind",
	driven: "rules by example: commands, and what they answer",
}

// mayImportTesting has the packages whose ordinary code is made for tests.
var mayImportTesting = edges{
	"lockdtest": "its New takes the test; it is for tests only",
}

func TestImports(t *testing.T) {
	report(t, checkImports(module(t), importPlan))
}

// checkImports compares the imports of all files with the plan, both ways.
func checkImports(sources []source, plan map[string]edges) []finding {
	var findings []finding
	used := make(map[string]bool)
	exists := make(map[string]bool)
	for _, s := range sources {
		pkg := s.pkg()
		row, planned := plan[pkg]
		if !planned && !exists[pkg] {
			findings = append(findings, finding{s.path, 1,
				fmt.Sprintf("package %s is not in importPlan: give it a row", pkg)})
		}
		exists[pkg] = true
		if !planned {
			continue
		}
		findings = append(findings, hiddenImports(s)...)
		for _, spec := range s.file.Imports {
			to := importPath(spec)
			if to == "testing" || strings.HasPrefix(to, "testing/") {
				if _, ok := mayImportTesting[pkg]; !ok && !s.isTest() {
					findings = append(findings, s.finding(spec.Pos(),
						"imports %s outside a test: move it into one", to))
				}
				continue
			}
			to, outside := planName(to)
			if !outside {
				continue
			}
			_, ok := row[to]
			used[pkg+" "+to] = true
			if s.isTest() && !ok {
				_, ok = testEdges[to]
				ok = ok || to == pkg
			}
			if !ok {
				findings = append(findings, s.finding(spec.Pos(),
					"%s imports %s, which importPlan does not allow: take it out, "+
						"or give the plan the arrow and its reason", pkg, to))
			}
		}
	}
	return append(findings, staleRows(plan, exists, used)...)
}

// hiddenImports finds the imports that the checks of this package would not see: they look for one
// name of each package, and read Go only.
func hiddenImports(s source) []finding {
	var findings []finding
	seen := make(map[string]bool)
	for _, spec := range s.file.Imports {
		to := importPath(spec)
		switch {
		case to == "C":
			findings = append(findings, s.finding(spec.Pos(), "imports C: write it in Go"))
		case spec.Name != nil && spec.Name.Name == ".":
			findings = append(findings, s.finding(spec.Pos(),
				"imports the names of %s without a package name: give them theirs", to))
		case seen[to]:
			findings = append(findings, s.finding(spec.Pos(),
				"imports %s once more: one name is enough", to))
		}
		seen[to] = true
	}
	return findings
}

// staleRows finds what the plan has and the module does not.
func staleRows(plan map[string]edges, exists, used map[string]bool) []finding {
	var findings []finding
	stale := func(format string, args ...any) {
		findings = append(findings,
			finding{path: "internal/arch/imports_test.go", text: fmt.Sprintf(format, args...)})
	}
	for pkg, row := range plan {
		if !exists[pkg] {
			stale("importPlan has package %s, which is not there: take the row out", pkg)
			continue
		}
		for to, why := range row {
			if !used[pkg+" "+to] {
				stale("importPlan has %s → %s, which nothing uses: take it out", pkg, to)
			}
			if why == "" {
				stale("importPlan has %s → %s without a reason: give it one", pkg, to)
			}
		}
	}
	return findings
}

// planName returns the name that a package has in the plan. It reports false for a package of the
// standard library.
func planName(imported string) (string, bool) {
	if imported == modulePath {
		return ".", true
	}
	if inside, ok := strings.CutPrefix(imported, modulePath+"/"); ok {
		return inside, true
	}
	first, _, _ := strings.Cut(imported, "/")
	return imported, strings.Contains(first, ".")
}

// The plan itself keeps what the design says: one package knows the file, two know the clock and
// two more its mock, and siblings do not import each other.
func TestImports_Plan(t *testing.T) {
	for pkg, row := range importPlan {
		for to := range row {
			var only []string
			switch {
			case to == bbolt:
				only = []string{"store/internal/file"}
			case to == btree:
				only = []string{"store/internal/file", "store/internal/table"}
			case to == clock:
				only = []string{
					".", "internal/expiry", "internal/hook", "internal/logger", "internal/writer",
					"lockdtest",
				}
			case to == "internal/hook":
				only = []string{".", "internal/writer", "lockdtest", "test"}
			case to == "internal/schema":
				only = []string{
					".", "catalog", "internal/engine", "test", "store", "store/internal/file",
					"store/internal/format", "store/internal/table",
				}
			case to == "internal/engine":
				only = []string{".", "catalog", "internal/writer", "test"}
			case to == "internal/expiry":
				only = []string{".", "internal/engine", "internal/logger", "internal/writer"}
			case to == "store":
				only = []string{
					".", "catalog", "internal/engine", "internal/hook", "test",
					"store/internal/file", "store/internal/table",
				}
			case to == "internal/hub":
				only = []string{".", "internal/engine"}
			case to == "internal/waitq":
				only = []string{"internal/engine"}
			case strings.HasPrefix(to, "internal/"):
				only = []string{"."}
			default:
				continue
			}
			if !slices.Contains(only, pkg) {
				t.Errorf("importPlan: %s → %s: only %q may", pkg, to, only)
			}
		}
	}
}

func TestImports_Reports(t *testing.T) {
	plan := map[string]edges{
		".":     {"store": "rows", clock: "time"},
		"store": {bbolt: ""},
		"gone":  {},
	}
	expect(t, checkImports([]source{
		fromText(t, "lockd.go", `package lockd
			import (
				"fmt"
				_ "testing/synctest"
				"github.com/lockd/lockd/store"
				"github.com/lockd/lockd/internal/hub"
			)`),
		fromText(t, "lockd_test.go", `package lockd_test
			import (
				"testing"
				"pgregory.net/rapid"
				"github.com/lockd/lockd"
				"github.com/google/btree"
			)`),
		fromText(t, "store/store.go", `package store
			import (
				bolt "go.etcd.io/bbolt"
				up "github.com/lockd/lockd"
			)`),
		fromText(t, "store/more.go", `package store
			import (
				. "time"
				"C"
				"fmt"
				std "fmt"
			)`),
		fromText(t, "util/util.go", `package util`),
		fromText(t, "util/more.go", `package util`),
	}, plan),
		"lockd.go:4: imports testing/synctest outside a test",
		"lockd.go:6: . imports internal/hub",
		"lockd_test.go:6: . imports github.com/google/btree",
		"store/store.go:4: store imports .",
		"store/more.go:3: imports the names of time without",
		"store/more.go:4: imports C",
		"store/more.go:6: imports fmt once more",
		"util/util.go:1: package util is not in importPlan",
		"package gone, which is not there",
		". → github.com/benbjohnson/clock, which nothing uses",
		"store → go.etcd.io/bbolt without a reason",
	)
}
