package engine

import (
	"slices"

	"github.com/lockd/lockd/internal/schema"
)

// Attach stores a record that dies with the session, or changes it; that of the zero ID stays until
// Detach. It returns ErrConflict if the record of that name is another owner's, and ErrNoSession.
func (tx *Txn) Attach(owner schema.ID, name string, value []byte) error {
	if !owner.IsZero() {
		if _, err := tx.Session(owner); err != nil {
			return err
		}
	}
	next := schema.Attachment{
		Name: name, Session: owner, Value: slices.Clone(value),
		CreateIndex: tx.next(), ModifyIndex: tx.next(),
	}
	if old := tx.engine.rows.Attachments.Newest(name); old != nil {
		if old.Session != owner {
			return conflict("attachment %q is of session %s", name, old.Session)
		}
		if slices.Equal(old.Value, value) {
			return nil
		}
		next.CreateIndex = old.CreateIndex
	}
	tx.engine.rows.Attachments.Put(name, next)
	return nil
}

// Detach removes an attachment, and reports whether there was one.
func (tx *Txn) Detach(name string) bool {
	if tx.engine.rows.Attachments.Newest(name) == nil {
		return false
	}
	tx.engine.rows.Attachments.Delete(name)
	return true
}

// attachmentMoved keeps each session's set of attachments.
func (e *Engine) attachmentMoved(old, new *schema.Attachment) {
	if old != nil {
		if s := e.sessions[old.Session]; s != nil {
			delete(s.attached, old.Name)
		}
	}
	if new != nil {
		s := e.sessions[new.Session]
		if s == nil { // it is of none
			return
		}
		if s.attached == nil {
			s.attached = make(map[string]struct{})
		}
		s.attached[new.Name] = struct{}{}
	}
}
