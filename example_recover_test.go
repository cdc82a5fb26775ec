package lockd_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lockd/lockd"
)

// damagedFile returns a file of two keys, one of which has a damaged value.
func damagedFile(folder string) (path string, err error) {
	path = filepath.Join(folder, "lockd.db")
	db, err := lockd.Open(path, nil)
	if err != nil {
		return "", err
	}
	err = db.Update(func(tx *lockd.Txn) error {
		if _, err := tx.Put("color", []byte("crimson"), nil); err != nil {
			return err
		}
		_, err := tx.Put("shape", []byte("round"), nil)
		return err
	})
	if err != nil {
		return "", err
	}
	if err := db.Close(); err != nil {
		return "", err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	content = bytes.Replace(content, []byte("crimson"), []byte("crimsoN"), 1)
	return path, os.WriteFile(path, content, 0o600)
}

// The undamaged part of a damaged file is restored into a new file.
func ExampleRecovery() {
	folder, err := os.MkdirTemp("", "lockd-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	path, err := damagedFile(folder)
	if err != nil {
		panic(err)
	}
	var backup bytes.Buffer
	found, err := lockd.Recover(path, &backup, nil)
	if err != nil {
		panic(err)
	}
	fmt.Println("keys:", found.Keys)
	for _, remark := range found.Missing {
		fmt.Println("missing:", remark)
	}
	restored := filepath.Join(folder, "restored.db")
	if err := lockd.Restore(restored, &backup, 0, nil); err != nil {
		panic(err)
	}
	fmt.Println("verified:", lockd.Verify(restored, nil))
	// Output:
	// keys: 1
	// missing: keys: "color": its checksum does not match
	// verified: <nil>
}
