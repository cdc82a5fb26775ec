package format

// Write is one change of a commit.
type Write struct {
	Table byte
	Key   string
	Value []byte // what Rows.Append made; nil deletes the row, if there is one
}

// Before is the order of the rows in a record.
func (r Write) Before(other Write) bool {
	if r.Table != other.Table {
		return r.Table < other.Table
	}
	return r.Key < other.Key
}
