package lockd_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// Ensure that registering the same again moves no index, wakes no call and ends no session.
func TestCatalog_N1_NoOp(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		node := catalog.Node{Name: "db1", ID: "1", Meta: map[string]string{"a": "b"}}
		service := catalog.Service{Node: "db1", Name: "mysql", Tags: []string{"t"},
			Meta: map[string]string{"a": "b"}}
		check := catalog.Check{Node: "db1", Name: "disk", Status: catalog.Passing, Output: "fine"}
		put := func(tx *lockd.Txn) error {
			return errors.Join(tx.Catalog().PutNode(node), tx.Catalog().PutService(service),
				tx.Catalog().PutCheck(check))
		}
		h.must(h.txn(put))
		s := h.session(&lockd.SessionOptions{Node: "db1", Checks: []string{"disk"}})
		index := h.Snapshot().Index()
		scope := lockd.CatalogScope()
		woken := h.changed(h.t.Context(), scope, h.Snapshot().IndexOf(scope))
		node.Meta, service.Meta = maps.Clone(node.Meta), maps.Clone(service.Meta)
		service.Tags = slices.Clone(service.Tags)
		h.must(h.txn(put))
		h.settle()
		if h.Snapshot().Index() != index || closed(woken) || s.Err() != nil {
			h.t.Errorf("index was %d, is %d; woken %v; session %v", index, h.Snapshot().Index(),
				closed(woken), s.Err())
		}
		node.Meta["a"], service.Tags[0] = "c", "u" // as many as before, but others
		h.must(h.txn(put))
		h.settle()
		if h.Snapshot().Index() != index+1 || !closed(woken) {
			h.t.Errorf("after a change: index %d, woken %v", h.Snapshot().Index(), closed(woken))
		}
	})
}

// Ensure that a node, a service or a check that differs in any one of its fields is a change.
func TestCatalog_N1_EveryFieldCounts(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		old, meta := map[string]string{"a": "a"}, map[string]string{"a": "b"} // of one size
		h.must(h.txn(func(tx *lockd.Txn) error {
			return errors.Join(tx.Catalog().PutNode(catalog.Node{Name: "db1", Meta: old}),
				tx.Catalog().PutService(catalog.Service{Node: "db1", Name: "mysql",
					Tags: []string{"a"}, Meta: old}),
				tx.Catalog().PutService(catalog.Service{Node: "db1", Name: "other"}),
				tx.Catalog().PutCheck(catalog.Check{Node: "db1", Name: "disk",
					Status: catalog.Passing, Meta: old}))
		}))
		changeEach(h, map[string]any{"Name": "DB1", "ID": "1", "Address": "x", "Meta": meta},
			(*catalog.Txn).PutNode, func(s *catalog.Snapshot) catalog.Node {
				n, _ := s.Node("db1")
				return n
			})
		changeEach(h, map[string]any{"Node": "DB1", "ID": "MySQL", "Name": "sql", "Address": "x",
			"Port": 1, "Tags": []string{"b"}, "Meta": meta},
			(*catalog.Txn).PutService, func(s *catalog.Snapshot) catalog.Service {
				v, _ := s.Service("db1", "mysql")
				return v
			})
		changeEach(h, map[string]any{"Node": "Db1", "ID": "Disk", "Name": "d", "Notes": "n",
			"Status": catalog.Warning, "Output": "o", "ServiceID": "other", "TTL": time.Hour,
			"Meta": meta},
			(*catalog.Txn).PutCheck, func(s *catalog.Snapshot) catalog.Check {
				c, _ := s.Check("db1", "disk")
				return c
			})
	})
}

// changeEach changes one field of a row after the other to the value in others, which is another
// one than the row has.
func changeEach[T any](h *harness, others map[string]any, put func(*catalog.Txn, T) error,
	get func(*catalog.Snapshot) T,
) {
	h.t.Helper()
	for _, field := range reflect.VisibleFields(reflect.TypeFor[T]()) {
		if field.Name == "CreateIndex" || field.Name == "ModifyIndex" {
			continue
		}
		other, known := others[field.Name]
		if !known {
			h.t.Fatalf("no other value is given for %s", field.Name)
		}
		before := h.Snapshot()
		row := get(before.Catalog())
		change := func(name string, to any) {
			reflect.ValueOf(&row).Elem().FieldByName(name).Set(reflect.ValueOf(to))
		}
		change(field.Name, other)
		h.must(h.txn(func(tx *lockd.Txn) error { return put(tx.Catalog(), row) }))
		change("ModifyIndex", before.Index()+1)
		if got := get(h.Snapshot().Catalog()); !reflect.DeepEqual(got, row) {
			h.t.Errorf("%s is changed: got %+v, want %+v", field.Name, got, row)
		}
	}
}

// Ensure that the catalog keeps copies of what the caller may change afterwards.
func TestCatalog_N1_KeepsCopies(t *testing.T) {
	each(t, func(h *harness) {
		meta, tags, value := map[string]string{"a": "b"}, []string{"t"}, []byte("v")
		h.must(h.txn(func(tx *lockd.Txn) error {
			return errors.Join(tx.Catalog().PutNode(catalog.Node{Name: "n", Meta: meta}),
				tx.Catalog().PutService(
					catalog.Service{Node: "n", Name: "s", Tags: tags, Meta: meta}),
				tx.Catalog().PutCheck(catalog.Check{Node: "n", Name: "c", Meta: meta}),
				tx.Catalog().AttachUnowned("a", value))
		}))
		meta["a"], tags[0], value[0] = "changed", "changed", '!'
		state := h.Snapshot().Catalog()
		n, _ := state.Node("n")
		s, _ := state.Service("n", "s")
		c, _ := state.Check("n", "c")
		a, _ := state.Attachment("a")
		if n.Meta["a"] != "b" || s.Meta["a"] != "b" || s.Tags[0] != "t" || c.Meta["a"] != "b" ||
			string(a.Value) != "v" {
			h.t.Errorf("%+v %+v %+v %+v", n, s, c, a)
		}
	})
}
