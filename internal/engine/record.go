package engine

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/lockd/lockd/internal/schema"
)

// record appends the events of what the transaction changed, one for each change.
func (tx *Txn) record(events []Event) []Event {
	s := tx.engine.rows
	events = tx.recordShares(events, ShareEnded) // before the grants that they make possible
	for old, new := range s.Keys.Changes() {
		n := len(events)
		events = slices.Grow(events, 1)[:n+1] // what is beyond the end is zero
		events[n].Index, events[n].Space = s.Next(), SpaceKeys
		events[n].Name = cmp.Or(new, old).Key
		events[n].Size = keyFootprint(old) + keyFootprint(new)
		tx.recordKey(&events[n].Body, old, new)
	}
	events = tx.recordShares(events, ShareGranted)
	if tx.serves {
		tx.recordWaits(events)
	}
	if s.Sessions.Changed() || s.Nodes.Changed() || s.Services.Changed() ||
		s.Checks.Changed() || s.Attachments.Changed() {
		return tx.recordOthers(events)
	}
	return events
}

// recordOthers is record for the other tables. It is a separate function because most transactions
// do not need its stack.
func (tx *Txn) recordOthers(events []Event) []Event {
	s := tx.engine.rows
	ends := make(map[schema.ID]error)
	for i := range tx.effects {
		if f := &tx.effects[i]; f.Kind == SessionEnded {
			ends[f.Session.Row.ID] = f.Cause
		}
	}
	before := len(events)
	for old, new := range s.Sessions.Changes() {
		id := cmp.Or(new, old).ID
		event := eventOf(s.Next(), old, new, SessionCreated)
		event.Space, event.Name = SpaceSessions, string(id[:])
		event.Body.Time = tx.now
		if new == nil {
			event.Body.Cause = ends[id]
		}
		events = append(events, event)
	}
	sessions := len(events)
	for old, new := range s.Nodes.Changes() {
		events = append(events, eventOf(s.Next(), old, new, NodePut))
	}
	for old, new := range s.Services.Changes() {
		events = append(events, eventOf(s.Next(), old, new, ServicePut))
	}
	for old, new := range s.Checks.Changes() {
		events = append(events, eventOf(s.Next(), old, new, CheckPut))
	}
	for old, new := range s.Attachments.Changes() {
		events = append(events, eventOf(s.Next(), old, new, AttachmentPut))
	}
	// Only a change with an event moves the index: a row that came and went does not.
	if sessions > before {
		tx.mark(MarkSessions)
	}
	if len(events) > sessions {
		tx.mark(MarkCatalog)
	}
	return events
}

// eventOf returns the event of a change, as of one in the catalog.
func eventOf[T any](index uint64, old, new *T, put RecordKind) Event {
	return Event{
		Index: index, Space: SpaceCatalog, Size: footprint(old) + footprint(new),
		Body: Record{Kind: kindOf(new, put), Old: old, New: new},
	}
}

// mark sets the mark of that name to the transaction's index.
func (tx *Txn) mark(name string) {
	tx.engine.rows.Marks.Put(name, schema.Mark{Name: name, Index: tx.Index()})
}

// kindOf returns the kind of a change; the kind of the deletion follows that of the put.
func kindOf[T any](new *T, put RecordKind) RecordKind {
	if new == nil {
		return put + 1
	}
	return put
}

// recordKey fills in the record of a key.
func (tx *Txn) recordKey(r *Record, old, new *schema.Key) {
	r.Kind, r.Old, r.New = kindOf(new, KeyPut), old, new
	held, holds := isLocked(old), isLocked(new)
	if !held && !holds || held && holds && old.Fence == new.Fence {
		return
	}
	r.Time = tx.now
	if holds {
		r.Holder = tx.engine.holder(new.Session).Row
	}
	if !held {
		return
	}
	r.Former = tx.engine.holder(old.Session).Row
	r.Cause = cmp.Or(tx.causes[SequencerOf(old)], ErrUnlocked)
	if !holds {
		r.Delay = tx.delayBegun(old.Key)
	}
}

// recordShares appends the events of that kind: ShareGranted, or ShareEnded. A share is not changed
// by a later transaction than the one that made it.
func (tx *Txn) recordShares(events []Event, kind RecordKind) []Event {
	e := tx.engine
	for old, new := range e.rows.Shares.Changes() {
		if kindOf(new, ShareGranted) != kind {
			continue
		}
		row, n := cmp.Or(new, old), len(events)
		events = slices.Grow(events, 1)[:n+1] // what is beyond the end is zero
		events[n].Index, events[n].Space, events[n].Name = tx.Index(), SpaceShares, row.Key()
		events[n].Size = uint32(len(events[n].Name))
		r, session := &events[n].Body, e.holder(row.Session()).Row
		r.Kind, r.Old, r.New, r.Time = kind, old, new, tx.now
		if kind == ShareGranted {
			r.Holder = session
			continue
		}
		r.Former, r.Cause = session, cmp.Or(tx.causes[SequencerOfShare(old)], ErrUnlocked)
		r.Delay = tx.delayBegun(row.Key())
	}
	return events
}

// delayBegun returns the lock-delay of the key that the transaction began, or nil.
func (tx *Txn) delayBegun(key string) *schema.Delay {
	if delay := tx.engine.rows.Delays.Newest(key); delay != nil && delay.Index == tx.Index() {
		return delay
	}
	return nil
}

// Clean reports whether a lock or a session with this cause of its end was released or closed, and
// not lost.
func Clean(cause error) bool {
	return errors.Is(cause, ErrUnlocked) || errors.Is(cause, ErrClosed)
}

// recordWaits sets in the event of each grant how long its session had waited: if calls of one
// session share a grant, their longest wait. It is for a transaction that has served waiters.
func (tx *Txn) recordWaits(events []Event) {
	var few [4]*Event // most transactions grant one lock
	grants := few[:0]
	for i := range events {
		if events[i].Body.Holder != nil {
			grants = append(grants, &events[i])
		}
	}
	slices.SortFunc(grants, func(a, b *Event) int {
		return compareGrant(a, b.Name, b.Body.Holder)
	})
	for i := range tx.effects {
		f := &tx.effects[i]
		if f.Kind != WaiterServed {
			continue
		}
		lasted := Lasted(f.Waiter.Began, f.instant)
		for j := range f.Waiter.claims {
			hold := f.Waiter.claims[j].hold
			at, found := slices.BinarySearchFunc(grants, hold, func(e *Event, hold *Hold) int {
				return compareGrant(e, hold.Key, hold.Session.Row)
			})
			if found && hold.Fence == tx.Index() { // else the lock was only taken over
				r := &grants[at].Body
				r.Waited = max(r.Waited, lasted)
			}
		}
	}
}

// compareGrant orders the events of grants by the key and the holder.
func compareGrant(grant *Event, key string, holder *schema.Session) int {
	return cmp.Or(strings.Compare(grant.Name, key),
		compareIDs(grant.Body.Holder.ID, holder.ID))
}

// keyFootprint is footprint for keys, which most events are about. The row may be nil.
func keyFootprint(row *schema.Key) uint32 {
	if row == nil {
		return 0
	}
	return uint32(len(row.Key) + len(row.Value))
}

// footprint returns how many of the user's bytes the row of an event, which may be nil, keeps from
// being freed.
func footprint[T any](row *T) uint32 {
	if row == nil {
		return 0
	}
	n := 0
	switch row := any(row).(type) {
	case *schema.Session:
		n = size(row.Name, row.Node) + size(row.Checks...) + metaSize(row.Meta)
	case *schema.Node:
		n = size(row.Name, row.ID, row.Address) + metaSize(row.Meta)
	case *schema.Service:
		n = size(row.Node, row.ID, row.Name, row.Address) + size(row.Tags...) + metaSize(row.Meta)
	case *schema.Check:
		n = size(row.Node, row.ID, row.Name, row.Notes, row.Output, row.ServiceID) +
			metaSize(row.Meta)
	case *schema.Attachment:
		n = len(row.Name) + len(row.Value)
	}
	return uint32(n)
}

func size(texts ...string) (bytes int) {
	for _, text := range texts {
		bytes += len(text)
	}
	return bytes
}

func metaSize(meta map[string]string) (bytes int) {
	for key, value := range meta {
		bytes += len(key) + len(value)
	}
	return bytes
}
