package engine

// rosterOf reads the semaphore, as of the newest state. It parses each row of a semaphore that has
// state beside its rows once: without that, each grant of a slot would take a time in proportion to
// the number of holders (BenchmarkSlot_Crowd).
func (tx *Txn) rosterOf(prefix string) (roster, error) {
	row := tx.Get(prefix + SemaphoreKey)
	sem := tx.engine.semaphores[prefix]
	if sem != nil && row != nil && sem.roster.row == row {
		return sem.roster, nil
	}
	r, err := rosterOf(prefix, row)
	for _, id := range r.holders {
		if row := tx.Get(contenderKey(prefix, id)); row == nil || row.Session != id {
			r.setIdle(id)
		}
	}
	if sem != nil {
		sem.roster, sem.named = r, false
	}
	return r, err
}

// slotHolders yields the sessions that have a slot of the semaphore, with their handles.
func (tx *Txn) slotHolders(prefix string, yield func(*Session, *Hold) bool) {
	slots, err := tx.rosterOf(prefix)
	if err != nil {
		return // a call that waits is about to be told
	}
	for row := range slots.held(tx.Get) {
		if !yield(tx.engine.holder(row.Session), tx.engine.lockOf(row.Key).hold) {
			return
		}
	}
}
