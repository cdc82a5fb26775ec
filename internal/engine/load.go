package engine

import (
	"fmt"
	"time"

	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// Load makes the state that is kept beside the rows of the store, which fit together, as of the
// instant at which the store was opened. It is called once, before the first transaction.
func (e *Engine) Load(now time.Time) {
	e.opened = now
	e.rows.Keys.OnMove(e.keyMoved)
	e.rows.Attachments.OnMove(e.attachmentMoved)
	for _, row := range e.rows.Sessions.Ascend("") {
		e.adopt(row, now)
	}
	for _, row := range e.rows.Locked() {
		e.keyMoved(nil, row)
		e.counts.Locks++
	}
	e.rows.Shares.OnMove(e.shareMoved)
	for _, row := range e.rows.Shares.Ascend("") {
		e.shareMoved(nil, row)
		e.counts.Shares++
	}
	for _, row := range e.rows.Attachments.Ascend("") {
		e.attachmentMoved(nil, row)
	}
	for key, row := range e.rows.Checks.Ascend("") {
		if lapses(row) {
			e.setLease(newCheckLease(key), now.Add(row.TTL))
		}
	}
	e.loadDelays(now)
	e.counts.Keys, e.counts.Sessions = e.rows.Keys.Len(), e.rows.Sessions.Len()
}

// loadDelays goes by the wall clock, which may have been set: no delay outlasts its length.
func (e *Engine) loadDelays(now time.Time) {
	for key, row := range e.rows.Delays.Ascend("") {
		left := min(row.Until.Sub(now.Round(0)), row.Length)
		if left <= 0 {
			e.overdue = append(e.overdue, key)
			continue
		}
		d := newDelay(key, now.Add(left))
		// Any delayed contender key may be that of a lost slot: the semaphore's own key may be
		// gone, or may no longer name the holder. One delay too many does less harm than one too
		// few (M5).
		d.slot, d.mode = !contenderOf(key).IsZero(), Mode(row.Mode)
		e.swapDelay(e.state(key), d)
	}
}

// Initialize writes what an opened database begins with: the node of the process, and the delays
// that end before the time in their rows, because the wall clock was set back since.
func (tx *Txn) Initialize() {
	e := tx.engine
	for key, row := range e.rows.Delays.Ascend("") {
		d := e.delayOf(key)
		if d == nil {
			continue
		}
		// Otherwise the next Open would begin the delay anew once more.
		if until := d.until.Round(0); until.Before(row.Until) {
			shorter := *row
			shorter.Until = until
			e.rows.Delays.Put(key, shorter)
		}
	}
	// No node has been written yet, so Get is enough: Newest would unfold the leaf of the row.
	if e.rows.Nodes.Get(Folded(e.config.Node)) == nil {
		tx.putNode(schema.Node{Name: e.config.Node})
	}
}

// CheckReferences returns ErrCorrupt if a row names a missing row, or a key is locked and shared.
func (e *Engine) CheckReferences() error {
	s := e.rows
	dangling := func(what, name, of, missing string) error {
		return fmt.Errorf("%w: %s %q is of %s %q, which is not there", store.ErrCorrupt, what,
			name, of, missing)
	}
	for _, row := range s.Locked() {
		if s.Sessions.Newest(string(row.Session[:])) == nil {
			return dangling("locked key", row.Key, "session", row.Session.String())
		}
	}
	for _, row := range s.Shares.Ascend("") {
		session := row.Session()
		if s.Sessions.Newest(string(session[:])) == nil {
			return dangling("share of", row.Key(), "session", session.String())
		}
		key := s.Keys.Newest(row.Key())
		if key == nil {
			return dangling("share of session", session.String(), "key", row.Key())
		}
		if !key.Session.IsZero() {
			return fmt.Errorf("%w: key %q is locked by session %s, and shared", store.ErrCorrupt,
				row.Key(), key.Session)
		}
	}
	for name, row := range s.Attachments.Ascend("") {
		if !row.Session.IsZero() && s.Sessions.Newest(string(row.Session[:])) == nil {
			return dangling("attachment", name, "session", row.Session.String())
		}
	}
	for id, row := range s.Sessions.Ascend("") {
		if s.Nodes.Newest(Folded(row.Node)) == nil {
			return dangling("session", schema.ID([]byte(id)).String(), "node", row.Node)
		}
		for _, check := range row.Checks {
			if s.Checks.Newest(CatalogKey(row.Node, check)) == nil {
				return dangling("session", schema.ID([]byte(id)).String(), "check", check)
			}
		}
	}
	for _, row := range s.Services.Ascend("") {
		if s.Nodes.Newest(Folded(row.Node)) == nil {
			return dangling("service", row.ID, "node", row.Node)
		}
	}
	for _, row := range s.Checks.Ascend("") {
		if s.Nodes.Newest(Folded(row.Node)) == nil {
			return dangling("check", row.ID, "node", row.Node)
		}
		if row.ServiceID != "" && s.Services.Newest(CatalogKey(row.Node, row.ServiceID)) == nil {
			return dangling("check", row.ID, "service", row.ServiceID)
		}
	}
	return nil
}
