package lockdui_test

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdui"
)

// BenchmarkPage makes the page of locks with 10,000 of them held.
func BenchmarkPage(b *testing.B) {
	db, err := lockd.New(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	pages, err := lockdui.Handler(db, nil)
	if err != nil {
		b.Fatal(err)
	}
	s, err := db.NewSession(nil)
	if err != nil {
		b.Fatal(err)
	}
	err = db.Update(func(tx *lockd.Txn) error {
		for i := range 10_000 {
			if _, err := tx.Lock(fmt.Sprintf("k/%05d", i), s.ID(), nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		w := httptest.NewRecorder()
		if pages.ServeHTTP(w, request("GET", "/", nil)); w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
}
