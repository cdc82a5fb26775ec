package file_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockd/lockd/store"
	"github.com/lockd/lockd/store/internal/file"
	"go.etcd.io/bbolt"
)

// places returns the keys of the table's rows, as the file has them.
func places(t *testing.T, path, table string) (found []string) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket([]byte(table)).ForEach(func(place, _ []byte) error {
			found = append(found, string(place))
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// copyOf copies a file to a place where it may be written to.
func copyOf(t testing.TB, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "lockd.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// refusedRows are rows that no store writes, and the text of their refusal.
type refusedRows struct {
	rows []file.RowWrite
	text string
}

// testRefused ensures that a file with such rows is refused, and left as it is.
func testRefused(t *testing.T, tests map[string]refusedRows) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := newPath(t)
			f := openFile(t, path, store.Options{})
			commit(t, f, 5, test.rows...)
			closeFile(t, f)
			before := stateOf(t, path)
			_, err := openStore(path)
			if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want ErrCorrupt with %q", err, test.text)
			}
			if stateOf(t, path) != before {
				t.Error("the file was written to")
			}
		})
	}
}
