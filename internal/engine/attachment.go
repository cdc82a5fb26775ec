package engine

import (
	"cmp"
	"iter"
	"slices"

	"github.com/lockd/lockd/internal/schema"
)

// Attachment returns the attachment with the name, or nil.
func (tx *Txn) Attachment(name string) *schema.Attachment {
	return tx.engine.rows.Attachments.Newest(name)
}

// Attachments yields the attachments whose names begin with the prefix, in order. The loop may
// write.
func (tx *Txn) Attachments(prefix string) iter.Seq2[string, *schema.Attachment] {
	return tx.engine.rows.Attachments.Prefix(prefix)
}

// Attach stores or changes a record that ends with the session. It returns ErrNoSession,
// ErrInvalid, or ErrConflict if another owner has a record of that name.
func (tx *Txn) Attach(session schema.ID, name string, value []byte) error {
	if _, err := tx.Session(session); err != nil {
		return err
	}
	return tx.attach(session, name, value)
}

// AttachUnowned is Attach for a record that stays until Detach.
func (tx *Txn) AttachUnowned(name string, value []byte) error {
	return tx.attach(schema.ID{}, name, value)
}

func (tx *Txn) attach(owner schema.ID, name string, value []byte) error {
	if err := cmp.Or(CheckName("name", name), CheckValue(value)); err != nil {
		return err
	}
	next := schema.Attachment{
		Name: name, Session: owner, Value: slices.Clone(value),
		CreateIndex: tx.Index(), ModifyIndex: tx.Index(),
	}
	if old := tx.Attachment(name); old != nil {
		if old.Session != owner {
			return conflict("attachment %.100q is owned by %s", name,
				cmp.Or(old.Session.String(), "no session"))
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
	if tx.Attachment(name) == nil {
		return false
	}
	tx.engine.rows.Attachments.Delete(name)
	return true
}

// attachmentMoved updates each session's set of attachments.
func (e *Engine) attachmentMoved(old, new *schema.Attachment) {
	if old != nil {
		if s := e.sessions[old.Session]; s != nil {
			delete(s.attached, old.Name)
		}
	}
	if new != nil {
		s := e.sessions[new.Session]
		if s == nil { // it has no owner
			return
		}
		if s.attached == nil {
			s.attached = make(map[string]struct{})
		}
		s.attached[new.Name] = struct{}{}
	}
}
