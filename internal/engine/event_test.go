package engine_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Ensure that the size of an event counts every text of its rows, the one before and the one after,
// so that the memory of a history is bounded whatever it tells.
func TestEvent_SizeIsOfAllTexts(t *testing.T) {
	w := newWorld(t, 0)
	told := map[reflect.Type]int{}
	write := func(fn func(tx *engine.Txn) error) {
		t.Helper()
		tx := w.engine.Begin(w.now)
		if err := fn(tx); err != nil {
			t.Fatal(err)
		}
		for _, event := range tx.Seal().Events {
			want := textBytes(reflect.ValueOf(event.Body.Old)) +
				textBytes(reflect.ValueOf(event.Body.New))
			if int(event.Size) != want {
				t.Errorf("%T %q: size %d, want %d", event.Body.New, event.Name, event.Size, want)
			}
			told[reflect.TypeOf(event.Body.New)]++
		}
		tx.Done()
	}

	meta := map[string]string{"meta": "of it"}
	for _, text := range []string{"a text", "another"} {
		write(func(tx *engine.Txn) error {
			tx.Put("key", []byte(text), 0)
			return errors.Join(
				tx.PutNode(schema.Node{Name: "node", ID: text, Address: text, Meta: meta}),
				tx.PutService(schema.Service{Node: "node", ID: "id", Name: "service",
					Address: text, Tags: []string{text, "tag"}, Meta: meta}),
				tx.PutCheck(schema.Check{Node: "node", ID: "check", Name: text, Notes: text,
					Output: text, ServiceID: "id", Status: engine.Passing, Meta: meta}),
			)
		})
	}
	write(func(tx *engine.Txn) error {
		s, err := tx.NewSession(schema.Session{ID: schema.ID{1}, Name: "name", Node: "node",
			Checks: []string{"check"}, Meta: meta})
		if err != nil {
			return err
		}
		return tx.Attach(s.Row.ID, "attached", []byte("value"))
	})
	write(func(tx *engine.Txn) error {
		tx.DeleteNode("node")
		tx.Delete("key")
		return nil
	})
	if len(told) != 6 {
		t.Errorf("told %v, want rows of six kinds", told)
	}
}

// textBytes counts the bytes of all texts in a row.
func textBytes(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			n = textBytes(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).Type() != reflect.TypeFor[time.Time]() {
				n += textBytes(v.Field(i))
			}
		}
	case reflect.String:
		n = v.Len()
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return v.Len()
		}
		for i := range v.Len() {
			n += textBytes(v.Index(i))
		}
	case reflect.Map:
		for entry := v.MapRange(); entry.Next(); {
			n += textBytes(entry.Key()) + textBytes(entry.Value())
		}
	}
	return n
}
