package format

// Tally tells whether the rows of a file are those that its last commit left. A page, sound in
// itself, that is as an older commit wrote it, because the disk lost a later write, is found so.
type Tally struct {
	Rows uint64
	Sum  uint64 // of the checksums of all rows
}

// Add counts a row with that checksum.
func (t *Tally) Add(checksum uint32) {
	t.Rows++
	t.Sum += uint64(checksum)
}

// Remove counts a row with that checksum no more.
func (t *Tally) Remove(checksum uint32) {
	t.Rows--
	t.Sum -= uint64(checksum)
}
