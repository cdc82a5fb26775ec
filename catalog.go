package lockd

import (
	"cmp"
	"iter"
	"strings"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// Node is a machine, or whatever sessions, services and checks belong to. Names are compared
// without case; the spelling given last is kept. The zero value is no node.
type Node struct {
	Name    string
	ID      string // optional; the same ID under another name is a renaming (N5)
	Address string
	Meta    map[string]string // shared: do not change it

	CreateIndex, ModifyIndex uint64 // set by the database
}

// Service is what a node offers. The zero value is no service.
type Service struct {
	Node    string
	ID      string // unique in the node; empty means Name
	Name    string
	Address string
	Port    int
	Tags    []string          // shared: do not change it
	Meta    map[string]string // shared: do not change it

	CreateIndex, ModifyIndex uint64 // set by the database
}

// Status is the state of a check. The zero value is Critical, as Consul's default is (N2).
type Status uint8

// The states. Only Critical ends sessions.
const (
	// Critical ends the sessions that are bound to the check.
	Critical Status = iota
	// Warning ends nothing.
	Warning
	// Passing is a check as it should be.
	Passing
)

// String returns the status as Consul writes it.
func (s Status) String() string { return name(s, "critical", "warning", "passing") }

// Check is a condition of a node, or of one of its services, that sessions can be bound to. The
// zero value is no check.
type Check struct {
	Node      string
	ID        string // unique in the node; empty means Name
	Name      string
	Status    Status
	Notes     string
	Output    string
	ServiceID string // the service that it is of; empty for the node's own

	// TTL is for how long a check that is not Critical stays as it is: unless it is put again in
	// time, which need not change it, it becomes Critical, and its output says so. The TTL runs
	// while the database is open, and begins anew with every Open. Zero means for ever.
	TTL time.Duration

	// Meta is data that the maker keeps with the check; the database does not look at it.
	Meta map[string]string // shared: do not change it

	CreateIndex, ModifyIndex uint64 // set by the database
}

// Attachment is a named record that dies with the session that it is of, in the same step. The zero
// value is no attachment.
type Attachment struct {
	Name    string    // unique in the database
	Session SessionID // zero if no session owns it
	Value   []byte    // shared: do not change it

	CreateIndex, ModifyIndex uint64 // set by the database
}

// checkCatalogName also refuses the byte that separates names.
func checkCatalogName(field, name string) error {
	if strings.Contains(name, "\x00") {
		return invalid("%s %q has a zero byte", field, name)
	}
	return checkName(field, name)
}

// checkCatalogID also refuses an ID under which no file could keep anything of the node: it would
// fail the commit, and with it all that ride in that.
func checkCatalogID(field, node, id string) error {
	if err := checkCatalogName(field, id); err != nil {
		return err
	}
	if n := len(engine.CatalogKey(node, id)); n > schema.KeyLimit {
		return invalid("%s and the node's name have %d bytes in lower case, more than %d", field,
			n-1, schema.KeyLimit-1)
	}
	return nil
}

// Node returns a node by its name, and whether there is one.
func (tx *Txn) Node(name string) (Node, bool) {
	tx.check()
	row := tx.db.rows.Nodes.Newest(engine.Folded(name))
	return nodeOf(row), row != nil
}

// PutNode registers a node, or changes it. A node with the same ID under another name is removed
// first, with all that belongs to it (N5). It returns ErrInvalid for a name that is empty or too
// long, or has a zero byte.
func (tx *Txn) PutNode(node Node) error {
	tx.enter()
	defer tx.leave()
	err := node.validate()
	if err == nil {
		tx.rules.PutNode(schema.Node(node))
	}
	return wrap("put node", node.Name, err)
}

func (n *Node) validate() error { return checkCatalogName("Node.Name", n.Name) }

// DeleteNode removes a node with its services and checks, and ends its sessions with ErrNodeGone
// (N4). It reports whether there was one.
func (tx *Txn) DeleteNode(name string) (bool, error) {
	tx.enter()
	defer tx.leave()
	return tx.rules.DeleteNode(name), nil
}

// Service returns a service of a node by its ID, and whether there is one.
func (tx *Txn) Service(node, id string) (Service, bool) {
	tx.check()
	row := tx.db.rows.Services.Newest(engine.CatalogKey(node, id))
	return serviceOf(row), row != nil
}

// PutService registers a service on a node, or changes it. It returns ErrNoNode, or ErrInvalid for
// an empty name, or an ID that is empty, has a zero byte, or is too long, also together with the
// name of its node (N1).
func (tx *Txn) PutService(service Service) error {
	tx.enter()
	defer tx.leave()
	service.ID = cmp.Or(service.ID, service.Name)
	err := service.validate()
	if err == nil {
		err = tx.rules.PutService(schema.Service(service))
	}
	return wrap("put service", service.ID, err)
}

func (s *Service) validate() error {
	if s.Name == "" {
		return invalid("Service.Name is empty")
	}
	return checkCatalogID("Service.ID", s.Node, s.ID)
}

// DeleteService removes a service with its checks, which ends the sessions that are bound to one
// of them with ErrCheckGone (N4). It reports whether there was one.
func (tx *Txn) DeleteService(node, id string) (bool, error) {
	tx.enter()
	defer tx.leave()
	return tx.rules.DeleteService(node, id), nil
}

// Check returns a check of a node by its ID, and whether there is one.
func (tx *Txn) Check(node, id string) (Check, bool) {
	tx.check()
	row := tx.db.rows.Checks.Newest(engine.CatalogKey(node, id))
	return checkOf(row), row != nil
}

// PutCheck registers a check, or changes it, and begins its TTL. If its status is Critical, every
// session that is bound to it ends with ErrCheckCritical, even if the check was so before (N3). It
// returns ErrNoNode, ErrNoService, or ErrInvalid for an ID as PutService does, an unknown status,
// or a TTL below zero, or above it and below MinTTL.
func (tx *Txn) PutCheck(check Check) error {
	tx.enter()
	defer tx.leave()
	check.ID = cmp.Or(check.ID, check.Name)
	err := check.validate()
	if err == nil {
		err = tx.rules.PutCheck(check.row())
	}
	return wrap("put check", check.ID, err)
}

func (c *Check) validate() error {
	if c.Status > Passing {
		return invalid("Check.Status is %d, not a Status", c.Status)
	}
	if err := checkTTL("Check.TTL", c.TTL); err != nil {
		return err
	}
	return checkCatalogID("Check.ID", c.Node, c.ID)
}

func (c *Check) row() schema.Check {
	return schema.Check{
		Node: c.Node, ID: c.ID, Name: c.Name, Status: uint8(c.Status), Notes: c.Notes,
		Output: c.Output, ServiceID: c.ServiceID, TTL: c.TTL, Meta: c.Meta,
	}
}

// DeleteCheck removes a check, which ends the sessions that are bound to it with ErrCheckGone
// (S30). It reports whether there was one.
func (tx *Txn) DeleteCheck(node, id string) (bool, error) {
	tx.enter()
	defer tx.leave()
	return tx.rules.DeleteCheck(node, id), nil
}

// Attach stores a record that dies with the session, or changes it. It returns ErrConflict if the
// record of that name is not the session's, ErrNoSession, and ErrInvalid for an empty name or a
// value over MaxValueSize.
func (tx *Txn) Attach(session SessionID, name string, value []byte) error {
	tx.enter()
	defer tx.leave()
	_, err := tx.rules.Session(schema.ID(session))
	if err == nil {
		err = tx.attach(session, name, value)
	}
	return wrap("attach", name, err)
}

// AttachUnowned stores a record as Attach does, but one that no session owns: it stays until
// Detach. It returns ErrConflict if the record of that name is a session's, and ErrInvalid for an
// empty name or a value over MaxValueSize.
func (tx *Txn) AttachUnowned(name string, value []byte) error {
	tx.enter()
	defer tx.leave()
	return wrap("attach", name, tx.attach(SessionID{}, name, value))
}

func (tx *Txn) attach(owner SessionID, name string, value []byte) error {
	if err := cmp.Or(checkName("name", name), checkValue(value)); err != nil {
		return err
	}
	return tx.rules.Attach(schema.ID(owner), name, value)
}

// Detach removes an attachment, and reports whether there was one.
func (tx *Txn) Detach(name string) (bool, error) {
	tx.enter()
	defer tx.leave()
	return tx.rules.Detach(name), nil
}

// Attachment returns an attachment by its name, and whether there is one.
func (tx *Txn) Attachment(name string) (Attachment, bool) {
	tx.check()
	row := tx.db.rows.Attachments.Newest(name)
	return attachmentOf(row), row != nil
}

// Attachments yields the attachments whose names begin with the prefix, in order. The loop may
// write.
func (tx *Txn) Attachments(prefix string) iter.Seq[Attachment] {
	tx.check()
	return func(yield func(Attachment) bool) {
		tx.check() // as in Txn.Prefix
		for _, row := range tx.db.rows.Attachments.Prefix(prefix) {
			if !yield(attachmentOf(row)) {
				return
			}
			tx.check()
		}
	}
}

func nodeOf(row *schema.Node) Node {
	if row == nil {
		return Node{}
	}
	return Node(*row)
}

func serviceOf(row *schema.Service) Service {
	if row == nil {
		return Service{}
	}
	return Service(*row)
}

func checkOf(row *schema.Check) Check {
	if row == nil {
		return Check{}
	}
	return Check{
		Node: row.Node, ID: row.ID, Name: row.Name, Status: Status(row.Status), Notes: row.Notes,
		Output: row.Output, ServiceID: row.ServiceID, TTL: row.TTL, Meta: row.Meta,
		CreateIndex: row.CreateIndex, ModifyIndex: row.ModifyIndex,
	}
}

func attachmentOf(row *schema.Attachment) Attachment {
	if row == nil {
		return Attachment{}
	}
	return Attachment{
		Name: row.Name, Session: SessionID(row.Session), Value: row.Value,
		CreateIndex: row.CreateIndex, ModifyIndex: row.ModifyIndex,
	}
}
