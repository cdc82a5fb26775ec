package catalog

import (
	"cmp"
	"iter"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

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

// Service returns a service of a node by its ID, and whether there is one.
func (tx *Txn) Service(node, id string) (Service, bool) {
	tx.of.Check()
	return value(tx.rules.Service(node, id), serviceOf)
}

// PutService registers a service on a node, or changes it. It returns ErrNoNode, or
// lockd.ErrInvalid for an empty name, or an ID that is empty, has a zero byte, is not UTF-8, or is
// too long, also together with the name of its node (N1).
func (tx *Txn) PutService(service Service) error {
	service.ID = cmp.Or(service.ID, service.Name)
	return tx.of.Write("put service", service.ID, func() error {
		return tx.rules.PutService(schema.Service(service))
	})
}

// DeleteService removes a service with its checks, which ends the sessions that are bound to one
// of them with ErrCheckGone (N4). It reports whether there was one.
func (tx *Txn) DeleteService(node, id string) (deleted bool, err error) {
	return tx.remove("delete service", id, func() bool { return tx.rules.DeleteService(node, id) })
}

// Service returns a service of a node by its ID, and whether there is one.
func (s *Snapshot) Service(node, id string) (Service, bool) {
	return value(s.rows.Services.Get(engine.CatalogKey(node, id)), serviceOf)
}

// Services yields the services of a node, or of all nodes if it is empty, in order.
func (s *Snapshot) Services(node string) iter.Seq[Service] {
	return values(s.rows.Services.Prefix(within(node)), serviceOf)
}

func serviceOf(row *schema.Service) Service { return Service(*row) }
