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

// Tally tells whether the rows of a file are those that its last commit left. It finds a page that
// is sound in itself, but older, because the disk lost a later write.
type Tally struct {
	Rows uint64
	Sum  uint64 // of the checksums of all rows
}

// Add counts a row with that checksum.
func (t *Tally) Add(checksum uint32) {
	t.Rows++
	t.Sum += uint64(checksum)
}

// Remove takes a row with that checksum out of the count.
func (t *Tally) Remove(checksum uint32) {
	t.Rows--
	t.Sum -= uint64(checksum)
}
