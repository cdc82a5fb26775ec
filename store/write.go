package store

// rowWrite is one change of a commit.
type rowWrite struct {
	table byte
	key   string
	value []byte // what appendRow made; nil deletes the row, if there is one
}

// before is the order of the rows in a record.
func (r rowWrite) before(other rowWrite) bool {
	if r.table != other.table {
		return r.table < other.table
	}
	return r.key < other.key
}
