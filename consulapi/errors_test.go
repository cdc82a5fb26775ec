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

// statuses has every error that lockd exports, by its name, with its HTTP status.
var statuses = map[string]struct {
	err  error
	code int
}{
	"ErrInvalid": {lockd.ErrInvalid, 400}, "ErrCorrupt": {lockd.ErrCorrupt, 400},
	"ErrFormat": {lockd.ErrFormat, 400}, "ErrConflict": {lockd.ErrConflict, 409},
	"ErrNotHeld": {lockd.ErrNotHeld, 409}, "ErrNoSession": {lockd.ErrNoSession, 500},
	"ErrNoNode": {catalog.ErrNoNode, 500}, "ErrNoService": {catalog.ErrNoService, 500},
	"ErrNoCheck": {catalog.ErrNoCheck, 500}, "ErrCheckCritical": {catalog.ErrCheckCritical, 500},

	"ErrClosed": {lockd.ErrClosed, 500}, "ErrFailed": {lockd.ErrFailed, 500},
	"ErrCommit": {lockd.ErrCommit, 500}, "ErrInUse": {lockd.ErrInUse, 500},
	"ErrCompacted": {lockd.ErrCompacted, 500},

	"ErrExpired": {lockd.ErrExpired, 500}, "ErrDestroyed": {lockd.ErrDestroyed, 500},
	"ErrNodeGone": {catalog.ErrNodeGone, 500}, "ErrCheckGone": {catalog.ErrCheckGone, 500},
	"ErrProcessGone": {lockd.ErrProcessGone, 500}, "ErrRestored": {lockd.ErrRestored, 500},
	"ErrUnlocked": {lockd.ErrUnlocked, 500}, "ErrKeyDeleted": {lockd.ErrKeyDeleted, 500},
	"ErrForced": {lockd.ErrForced, 500}, "ErrHeldTooLong": {lockd.ErrHeldTooLong, 500},
}

// Ensure that every error of both errors.go files has the status that was chosen for it.
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
	if known := slices.Sorted(maps.Keys(statuses)); !slices.Equal(exported, known) {
		t.Errorf("errors.go exports %v\nand this test knows %v", exported, known)
	}
	for name, want := range statuses {
		if code := consulapi.StatusOf(want.err); code != want.code {
			t.Errorf("%s has status %d, not %d", name, code, want.code)
		}
	}
}

// Ensure that every write after Close is refused, and a read is still answered.
func TestStatuses_ErrClosed(t *testing.T) {
	run(t, nil, func(h *harness) {
		h.put("a", "v")
		id := h.create(`{}`).ID
		h.must(h.db.Close())
		h.want("PUT /v1/kv/a", "w", 500, `lockd: put "a": database closed by its owner`)
		write := func(target, body string) {
			t.Helper()
			if r := h.send(target, body); r.code != 500 ||
				!strings.Contains(r.body, "database closed by its owner") {
				t.Errorf("%s: %d %s", target, r.code, r.body)
			}
		}
		for _, target := range []string{
			"PUT /v1/kv/a?cas=0", "PUT /v1/kv/a?acquire=" + id, "PUT /v1/kv/a?release=" + id,
			"DELETE /v1/kv/a", "DELETE /v1/kv/a?cas=1", "DELETE /v1/kv/a?recurse",
			"DELETE /v1/kv/?recurse", "PUT /v1/session/create", "PUT /v1/session/renew/" + id,
			"PUT /v1/session/destroy/" + id, "PUT /v1/agent/check/pass/c",
			"PUT /v1/agent/check/deregister/c", "PUT /v1/agent/service/deregister/s",
			"PUT /v1/agent/maintenance?enable=true",
			"PUT /v1/agent/service/maintenance/s?enable=true", "DELETE /v1/query/" + id,
		} {
			write(target, "")
		}
		write("PUT /v1/txn", `[{"KV":{"Verb":"set","Key":"a"}}]`)
		write("PUT /v1/catalog/register", `{"Node":"n","Address":"10.0.0.1"}`)
		write("PUT /v1/catalog/deregister", `{"Node":"n"}`)
		write("PUT /v1/agent/check/register", `{"Name":"c","TTL":"1s"}`)
		write("PUT /v1/agent/check/update/c", `{"Status":"passing"}`)
		write("PUT /v1/agent/service/register", `{"Name":"s"}`)
		write("POST /v1/query", `{"Service":{"Service":"s"}}`)
		write("PUT /v1/query/"+id, `{"Service":{"Service":"s"}}`)
		write("PUT /v1/snapshot", h.send("GET /v1/snapshot", "").body)
		h.want("GET /v1/kv/a?raw", "", 200, "v")
		h.want("GET /v1/kv/?keys", "", 200, `["a"]`)
	})
}
