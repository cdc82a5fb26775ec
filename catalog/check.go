package catalog

import (
	"cmp"
	"iter"
	"strconv"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Status is the state of a check. The zero value is Critical, as Consul's default is (N2).
type Status uint8

// The states. Only Critical ends sessions.
const (
	// Critical ends the sessions that are bound to the check.
	Critical Status = engine.Critical
	// Warning ends nothing.
	Warning Status = 1
	// Passing is a check as it should be.
	Passing Status = engine.Passing
)

// String returns the status as Consul writes it.
func (s Status) String() string {
	switch s {
	case Critical:
		return "critical"
	case Warning:
		return "warning"
	case Passing:
		return "passing"
	}
	return strconv.Itoa(int(s))
}

// Check is a condition of a node, or of one of its services, that sessions can be bound to. The
// zero value is no check.
type Check struct {
	Node      string
	ID        string // unique in the node; empty means Name
	Name      string
	Status    Status
	Notes     string
	Output    string
	ServiceID string // the service that it checks; empty for the node

	// TTL is for how long a check that is not Critical stays as it is. Unless the check is put
	// again in time, with or without a change, it becomes Critical, and its output says so. The TTL
	// runs while the database is open, and begins anew with every Open. Zero means for ever.
	TTL time.Duration

	// Meta is data that the maker keeps with the check; the database does not look at it.
	Meta map[string]string // shared: do not change it

	CreateIndex, ModifyIndex uint64 // set by the database
}

// Check returns a check of a node by its ID, and whether there is one.
func (tx *Txn) Check(node, id string) (Check, bool) {
	tx.of.Check()
	return value(tx.rules.Check(node, id), checkOf)
}

// PutCheck registers a check, or changes it, and begins its TTL. If its status is Critical, every
// session that is bound to it ends with ErrCheckCritical, even if the check was critical before
// (N3). It returns ErrNoNode, ErrNoService, or lockd.ErrInvalid for an ID as PutService does, an
// unknown status, a TTL below zero, or one between zero and lockd.MinTTL.
func (tx *Txn) PutCheck(check Check) error {
	check.ID = cmp.Or(check.ID, check.Name)
	return tx.of.Write("put check", check.ID, func() error {
		return tx.rules.PutCheck(schema.Check{
			Node: check.Node, ID: check.ID, Name: check.Name, Status: uint8(check.Status),
			Notes: check.Notes, Output: check.Output, ServiceID: check.ServiceID, TTL: check.TTL,
			Meta: check.Meta,
		})
	})
}

// DeleteCheck removes a check, which ends the sessions that are bound to it with ErrCheckGone
// (S30). It reports whether there was one.
func (tx *Txn) DeleteCheck(node, id string) (deleted bool, err error) {
	return tx.remove("delete check", id, func() bool { return tx.rules.DeleteCheck(node, id) })
}

// Check returns a check of a node by its ID, and whether there is one.
func (s *Snapshot) Check(node, id string) (Check, bool) {
	return value(s.rows.Checks.Get(engine.CatalogKey(node, id)), checkOf)
}

// Checks yields the checks of a node, or of all nodes if it is empty, in order.
func (s *Snapshot) Checks(node string) iter.Seq[Check] {
	return values(s.rows.Checks.Prefix(within(node)), checkOf)
}

func checkOf(row *schema.Check) Check {
	return Check{
		Node: row.Node, ID: row.ID, Name: row.Name, Status: Status(row.Status), Notes: row.Notes,
		Output: row.Output, ServiceID: row.ServiceID, TTL: row.TTL, Meta: row.Meta,
		CreateIndex: row.CreateIndex, ModifyIndex: row.ModifyIndex,
	}
}
