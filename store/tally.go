package store

// tally tells whether the rows of a file are those that its last commit left. A page, sound in
// itself, that is as an older commit wrote it, because the disk lost a later write, is found so.
type tally struct {
	rows uint64
	sum  uint64 // of the checksums of all rows
}

func (t *tally) add(checksum uint32) {
	t.rows++
	t.sum += uint64(checksum)
}

func (t *tally) remove(checksum uint32) {
	t.rows--
	t.sum -= uint64(checksum)
}
