package catalog

import (
	"iter"

	"github.com/lockd/lockd/internal/schema"
)

// Attachment is a named record that is removed in the step in which its session ends. The zero
// value is no attachment.
type Attachment struct {
	Name    string   // unique in the database
	Session [16]byte // a lockd.SessionID; zero if no session owns the record
	Value   []byte   // shared: do not change it

	CreateIndex, ModifyIndex uint64 // set by the database
}

// Attach stores a record that is removed with the session, which is a lockd.SessionID, or changes
// it. It returns lockd.ErrConflict if the record of that name is not the session's,
// lockd.ErrNoSession, and lockd.ErrInvalid for an empty session, a name that is empty or over
// lockd.MaxKeySize, or a value over lockd.MaxValueSize.
func (tx *Txn) Attach(session [16]byte, name string, value []byte) error {
	return tx.of.Write("attach", name, func() error {
		return tx.rules.Attach(session, name, value)
	})
}

// AttachUnowned stores a record as Attach does, but one that no session owns: it stays until
// Detach. It returns lockd.ErrConflict if the record of that name is a session's, and
// lockd.ErrInvalid for a name or a value as Attach does.
func (tx *Txn) AttachUnowned(name string, value []byte) error {
	return tx.of.Write("attach", name, func() error {
		return tx.rules.AttachUnowned(name, value)
	})
}

// Detach removes an attachment, and reports whether there was one.
func (tx *Txn) Detach(name string) (detached bool, err error) {
	return tx.remove("detach", name, func() bool { return tx.rules.Detach(name) })
}

// Attachment returns an attachment by its name, and whether there is one.
func (tx *Txn) Attachment(name string) (Attachment, bool) {
	tx.of.Check()
	return value(tx.rules.Attachment(name), attachmentOf)
}

// Attachments yields the attachments whose names begin with the prefix, in order. The loop may
// write.
func (tx *Txn) Attachments(prefix string) iter.Seq[Attachment] {
	tx.of.Check()
	return func(yield func(Attachment) bool) {
		tx.of.Check() // the loop may have been carried out of the function, at any step
		for _, row := range tx.rules.Attachments(prefix) {
			if !yield(attachmentOf(row)) {
				return
			}
			tx.of.Check()
		}
	}
}

// Attachment returns an attachment by its name, and whether there is one.
func (s *Snapshot) Attachment(name string) (Attachment, bool) {
	return value(s.rows.Attachments.Get(name), attachmentOf)
}

// Attachments yields the attachments whose names begin with the prefix, in order.
func (s *Snapshot) Attachments(prefix string) iter.Seq[Attachment] {
	return values(s.rows.Attachments.Prefix(prefix), attachmentOf)
}

func attachmentOf(row *schema.Attachment) Attachment {
	return Attachment{
		Name: row.Name, Session: row.Session, Value: row.Value,
		CreateIndex: row.CreateIndex, ModifyIndex: row.ModifyIndex,
	}
}
