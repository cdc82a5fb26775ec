package lockd

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

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

// catalogKey is the key under which something of a node is kept.
func catalogKey(node, id string) string { return folded(node) + "\x00" + folded(id) }

// missing says what is not there, or not as it should be.
func missing(sentinel error, name string) error { return fmt.Errorf("%w: %q", sentinel, name) }

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
	if n := len(catalogKey(node, id)); n > schema.KeyLimit {
		return invalid("%s and the node's name have %d bytes in lower case, more than %d", field,
			n-1, schema.KeyLimit-1)
	}
	return nil
}

// Node returns a node by its name, and whether there is one.
func (tx *Txn) Node(name string) (Node, bool) {
	tx.check()
	row := tx.db.store.Nodes.Newest(folded(name))
	return nodeOf(row), row != nil
}

// PutNode registers a node, or changes it. A node with the same ID under another name is removed
// first, with all that belongs to it (N5). It returns ErrInvalid for a name that is empty or too
// long, or has a zero byte.
func (tx *Txn) PutNode(node Node) (err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "put node", node.Name)
	if err := checkCatalogName("Node.Name", node.Name); err != nil {
		return err
	}
	old := tx.db.store.Nodes.Newest(folded(node.Name))
	if node.ID != "" && (old == nil || old.ID != node.ID) {
		for key, row := range tx.db.store.Nodes.Ascend("") {
			if row.ID == node.ID && key != folded(node.Name) {
				tx.removeNode(row)
			}
		}
	}
	next := schema.Node{
		Name: node.Name, ID: node.ID, Address: node.Address, Meta: maps.Clone(node.Meta),
		CreateIndex: tx.db.store.Next(), ModifyIndex: tx.db.store.Next(),
	}
	if old != nil {
		next.CreateIndex = old.CreateIndex
		if old.Name == next.Name && old.ID == next.ID && old.Address == next.Address &&
			maps.Equal(old.Meta, next.Meta) {
			return nil
		}
	}
	tx.db.store.Nodes.Put(folded(node.Name), next)
	return nil
}

// DeleteNode removes a node with its services and checks, and ends its sessions with ErrNodeGone
// (N4). It reports whether there was one.
func (tx *Txn) DeleteNode(name string) (deleted bool, err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "delete node", name)
	row := tx.db.store.Nodes.Newest(folded(name))
	if row == nil {
		return false, nil
	}
	tx.removeNode(row)
	return true, nil
}

func (tx *Txn) removeNode(row *schema.Node) {
	db := tx.db
	tx.endBound(folded(row.Name), missing(ErrNodeGone, row.Name))
	of := folded(row.Name) + "\x00"
	for key := range db.store.Services.Prefix(of) {
		db.store.Services.Delete(key)
	}
	for key := range db.store.Checks.Prefix(of) {
		db.store.Checks.Delete(key)
		tx.endTTL(key)
	}
	db.store.Nodes.Delete(folded(row.Name))
}

// Service returns a service of a node by its ID, and whether there is one.
func (tx *Txn) Service(node, id string) (Service, bool) {
	tx.check()
	row := tx.db.store.Services.Newest(catalogKey(node, id))
	return serviceOf(row), row != nil
}

// PutService registers a service on a node, or changes it. It returns ErrNoNode, or ErrInvalid for
// an empty name, or an ID that is empty, has a zero byte, or is too long, also together with the
// name of its node (N1).
func (tx *Txn) PutService(service Service) (err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "put service", service.ID)
	if service.ID == "" {
		service.ID = service.Name
	}
	if service.Name == "" {
		return invalid("Service.Name is empty")
	}
	if err := checkCatalogID("Service.ID", service.Node, service.ID); err != nil {
		return err
	}
	if tx.db.store.Nodes.Newest(folded(service.Node)) == nil {
		return missing(ErrNoNode, service.Node)
	}
	next := schema.Service{
		Node: service.Node, ID: service.ID, Name: service.Name, Address: service.Address,
		Port: service.Port, Tags: slices.Clone(service.Tags), Meta: maps.Clone(service.Meta),
		CreateIndex: tx.db.store.Next(), ModifyIndex: tx.db.store.Next(),
	}
	key := catalogKey(service.Node, service.ID)
	if old := tx.db.store.Services.Newest(key); old != nil {
		next.CreateIndex = old.CreateIndex
		if old.Node == next.Node && old.ID == next.ID &&
			old.Name == next.Name && old.Address == next.Address && old.Port == next.Port &&
			slices.Equal(old.Tags, next.Tags) && maps.Equal(old.Meta, next.Meta) {
			return nil
		}
	}
	tx.db.store.Services.Put(key, next)
	return nil
}

// DeleteService removes a service with its checks, which ends the sessions that are bound to one
// of them with ErrCheckGone (N4). It reports whether there was one.
func (tx *Txn) DeleteService(node, id string) (deleted bool, err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "delete service", id)
	key := catalogKey(node, id)
	row := tx.db.store.Services.Newest(key)
	if row == nil {
		return false, nil
	}
	of := folded(node) + "\x00"
	for key, check := range tx.db.store.Checks.Prefix(of) {
		if folded(check.ServiceID) == folded(id) {
			tx.removeCheck(key)
		}
	}
	tx.db.store.Services.Delete(key)
	return true, nil
}

// Check returns a check of a node by its ID, and whether there is one.
func (tx *Txn) Check(node, id string) (Check, bool) {
	tx.check()
	row := tx.db.store.Checks.Newest(catalogKey(node, id))
	return checkOf(row), row != nil
}

// PutCheck registers a check, or changes it, and begins its TTL. If its status is Critical, every
// session that is bound to it ends with ErrCheckCritical, even if the check was so before (N3). It
// returns ErrNoNode, ErrNoService, or ErrInvalid for an ID as PutService does, an unknown status,
// or a TTL below zero, or above it and below MinTTL.
func (tx *Txn) PutCheck(check Check) (err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "put check", check.ID)
	if check.ID == "" {
		check.ID = check.Name
	}
	if check.Status > Passing {
		return invalid("Check.Status is %d, not a Status", check.Status)
	}
	if err := checkTTL("Check.TTL", check.TTL); err != nil {
		return err
	}
	if err := checkCatalogID("Check.ID", check.Node, check.ID); err != nil {
		return err
	}
	if tx.db.store.Nodes.Newest(folded(check.Node)) == nil {
		return missing(ErrNoNode, check.Node)
	}
	if check.ServiceID != "" &&
		tx.db.store.Services.Newest(catalogKey(check.Node, check.ServiceID)) == nil {
		return missing(ErrNoService, check.ServiceID)
	}
	next := schema.Check{
		Node: check.Node, ID: check.ID, Name: check.Name, Status: uint8(check.Status),
		Notes: check.Notes, Output: check.Output, ServiceID: check.ServiceID,
		TTL: check.TTL, Meta: maps.Clone(check.Meta),
		CreateIndex: tx.db.store.Next(), ModifyIndex: tx.db.store.Next(),
	}
	tx.writeCheck(catalogKey(check.Node, check.ID), next)
	return nil
}

// writeCheck puts the row of a check, unless it changes nothing, with what follows from its status
// and TTL.
func (tx *Txn) writeCheck(key string, next schema.Check) {
	if Status(next.Status) == Critical {
		tx.endBound(key, missing(ErrCheckCritical, next.ID))
	}
	if lapses(&next) {
		tx.beginTTL(key, next.TTL)
	} else {
		tx.endTTL(key)
	}
	if old := tx.db.store.Checks.Newest(key); old != nil {
		if old.Node == next.Node && old.ID == next.ID && old.Name == next.Name &&
			old.Status == next.Status && old.Notes == next.Notes && old.Output == next.Output &&
			old.ServiceID == next.ServiceID && old.TTL == next.TTL &&
			maps.Equal(old.Meta, next.Meta) {
			return
		}
		next.CreateIndex = old.CreateIndex
	}
	tx.db.store.Checks.Put(key, next)
}

// DeleteCheck removes a check, which ends the sessions that are bound to it with ErrCheckGone
// (S30). It reports whether there was one.
func (tx *Txn) DeleteCheck(node, id string) (deleted bool, err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "delete check", id)
	key := catalogKey(node, id)
	if tx.db.store.Checks.Newest(key) == nil {
		return false, nil
	}
	tx.removeCheck(key)
	return true, nil
}

func (tx *Txn) removeCheck(key string) {
	tx.endBound(key, missing(ErrCheckGone, tx.db.store.Checks.Newest(key).ID))
	tx.db.store.Checks.Delete(key)
	tx.endTTL(key)
}

// bind and unbind keep db.bound: which sessions belong to a node, and to each of their checks.
func (db *DB) bind(s *Session) {
	for _, key := range s.bindings() {
		if db.bound[key] == nil {
			db.bound[key] = make(map[*Session]struct{})
		}
		db.bound[key][s] = struct{}{}
	}
}

func (db *DB) unbind(s *Session) {
	for _, key := range s.bindings() {
		if delete(db.bound[key], s); len(db.bound[key]) == 0 {
			delete(db.bound, key)
		}
	}
}

func (s *Session) bindings() []string {
	keys := []string{folded(s.row.Node)}
	for _, id := range s.row.Checks {
		keys = append(keys, catalogKey(s.row.Node, id))
	}
	return keys
}

// endBound ends the sessions that are bound to a node or a check, the oldest first.
func (tx *Txn) endBound(key string, cause error) {
	bound := slices.SortedFunc(maps.Keys(tx.db.bound[key]), func(a, b *Session) int {
		return cmp.Compare(a.row.CreateIndex, b.row.CreateIndex)
	})
	for _, s := range bound {
		if s.live {
			tx.endSession(s, cause)
		}
	}
}

// Attach stores a record that dies with the session, or changes it. It returns ErrConflict if the
// record of that name is not the session's, ErrNoSession, and ErrInvalid for an empty name or a
// value over MaxValueSize.
func (tx *Txn) Attach(session SessionID, name string, value []byte) (err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "attach", name)
	s, err := tx.session(session)
	if err != nil {
		return err
	}
	return tx.attach(s.row.ID, name, value)
}

// AttachUnowned stores a record as Attach does, but one that no session owns: it stays until
// Detach. It returns ErrConflict if the record of that name is a session's, and ErrInvalid for an
// empty name or a value over MaxValueSize.
func (tx *Txn) AttachUnowned(name string, value []byte) (err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "attach", name)
	return tx.attach(schema.ID{}, name, value)
}

func (tx *Txn) attach(owner schema.ID, name string, value []byte) error {
	if err := checkName("name", name); err != nil {
		return err
	}
	if len(value) > MaxValueSize {
		return invalid("value has %d bytes, more than %d", len(value), MaxValueSize)
	}
	next := schema.Attachment{
		Name: name, Session: owner, Value: slices.Clone(value),
		CreateIndex: tx.db.store.Next(), ModifyIndex: tx.db.store.Next(),
	}
	if old := tx.db.store.Attachments.Newest(name); old != nil {
		if old.Session != owner {
			return conflict("attachment %q is of session %s", name, SessionID(old.Session))
		}
		if slices.Equal(old.Value, value) {
			return nil
		}
		next.CreateIndex = old.CreateIndex
	}
	tx.db.store.Attachments.Put(name, next)
	return nil
}

// Detach removes an attachment, and reports whether there was one.
func (tx *Txn) Detach(name string) (ok bool, err error) {
	tx.enter()
	defer tx.leave()
	defer label(&err, "detach", name)
	if tx.db.store.Attachments.Newest(name) == nil {
		return false, nil
	}
	tx.db.store.Attachments.Delete(name)
	return true, nil
}

// Attachment returns an attachment by its name, and whether there is one.
func (tx *Txn) Attachment(name string) (Attachment, bool) {
	tx.check()
	row := tx.db.store.Attachments.Newest(name)
	return attachmentOf(row), row != nil
}

// Attachments yields the attachments whose names begin with the prefix, in order. The loop may
// write.
func (tx *Txn) Attachments(prefix string) iter.Seq[Attachment] {
	tx.check()
	return func(yield func(Attachment) bool) {
		tx.check() // as in Txn.Prefix
		for _, row := range tx.db.store.Attachments.Prefix(prefix) {
			if !yield(attachmentOf(row)) {
				return
			}
			tx.check()
		}
	}
}

// attachmentMoved keeps each session's set of attachments.
func (db *DB) attachmentMoved(old, new *schema.Attachment) {
	if old != nil {
		if s := db.sessions[SessionID(old.Session)]; s != nil {
			delete(s.attached, old.Name)
		}
	}
	if new != nil {
		s := db.sessions[SessionID(new.Session)]
		if s == nil { // it is of none
			return
		}
		if s.attached == nil {
			s.attached = make(map[string]struct{})
		}
		s.attached[new.Name] = struct{}{}
	}
}

// detachAll removes what dies with the session.
func (tx *Txn) detachAll(s *Session) {
	for name := range s.attached {
		tx.db.store.Attachments.Delete(name)
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
