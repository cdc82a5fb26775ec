package consulapi_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
	"github.com/lockd/lockd/consulapi"
)

// sentinels has every error that lockd exports, by its name.
var sentinels = map[string]error{
	"ErrClosed": lockd.ErrClosed, "ErrInUse": lockd.ErrInUse, "ErrCorrupt": lockd.ErrCorrupt,
	"ErrFormat": lockd.ErrFormat, "ErrCommit": lockd.ErrCommit, "ErrFailed": lockd.ErrFailed,
	"ErrInvalid": lockd.ErrInvalid, "ErrConflict": lockd.ErrConflict,
	"ErrNotHeld": lockd.ErrNotHeld, "ErrNoSession": lockd.ErrNoSession,
	"ErrNoNode": catalog.ErrNoNode, "ErrNoService": catalog.ErrNoService,
	"ErrNoCheck": catalog.ErrNoCheck, "ErrCompacted": lockd.ErrCompacted,
	"ErrExpired": lockd.ErrExpired, "ErrDestroyed": lockd.ErrDestroyed,
	"ErrNodeGone": catalog.ErrNodeGone, "ErrCheckGone": catalog.ErrCheckGone,
	"ErrCheckCritical": catalog.ErrCheckCritical, "ErrProcessGone": lockd.ErrProcessGone,
	"ErrRestored": lockd.ErrRestored, "ErrUnlocked": lockd.ErrUnlocked,
	"ErrKeyDeleted": lockd.ErrKeyDeleted, "ErrForced": lockd.ErrForced,
	"ErrHeldTooLong": lockd.ErrHeldTooLong,
}

// Ensure that the table of statuses has every error of both errors.go files.
func TestStatuses_Complete(t *testing.T) {
	var exported []string
	for _, path := range []string{"../errors.go", "../catalog/errors.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Err") {
				exported = append(exported, spec.Names[0].Name)
			}
			return true
		})
	}
	slices.Sort(exported)
	if known := slices.Sorted(maps.Keys(sentinels)); !slices.Equal(exported, known) {
		t.Errorf("errors.go exports %v\nand this test knows %v", exported, known)
	}
	table := consulapi.Statuses()
	for name, sentinel := range sentinels {
		if code := table[sentinel]; code < 400 || code > 599 {
			t.Errorf("%s has status %d", name, code)
		}
	}
	if len(table) != len(sentinels) {
		t.Errorf("the table has %d rows for %d errors", len(table), len(sentinels))
	}
}

// Ensure that a write after Close is refused, and a read is still answered.
func TestStatuses_ErrClosed(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "v")
		h.must(h.db.Close())
		h.want("PUT /v1/kv/a", "w", 500, `lockd: put "a": database closed by its owner`)
		h.want("GET /v1/kv/a?raw", "", 200, "v")
	})
}
