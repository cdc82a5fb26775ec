package lockdtest

import "time"

// BePatientFor sets how long the test waits for what its own goroutines have to do.
func (db *DB) BePatientFor(d time.Duration) { db.patience = d }

// FeignBug lets the check of the database's state return err.
func (db *DB) FeignBug(err error) { db.door.Check = func() error { return err } }
