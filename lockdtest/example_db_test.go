package lockdtest_test

import (
	"errors"
	"fmt"

	"github.com/lockd/lockd/lockdtest"
)

// A write that fails has changed nothing, and can be repeated.
func ExampleDB() {
	t := &exampleT{} // in a test, its own
	defer t.end()
	db := lockdtest.New(t, nil)

	db.FailNextCommit(errors.New("disk full"))
	for range 2 {
		_, err := db.Put("config/color", []byte("red"), nil)
		_, there := db.Get("config/color")
		fmt.Println(err, there)
	}
	// Output:
	// lockd: put "config/color": commit did not succeed: disk full false
	// <nil> true
}
