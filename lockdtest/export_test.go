package lockdtest

// FeignBug lets the check of the database's state return err.
func (db *DB) FeignBug(err error) { db.door.Check = func() error { return err } }
