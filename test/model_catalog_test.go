package lockd_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// The rules of the model for nodes, services and checks, and the operations on them.

// What there may be in the catalog beside the process's own node.
const (
	otherNode  = "other"
	otherID    = "its ID"
	theService = "web"
)

// modelChecks are the checks that there may be, in the order in which they are listed.
var modelChecks = [...]catalog.Check{
	{Node: ownNode, ID: "beat"},
	{Node: otherNode, ID: "health"},
	{Node: otherNode, ID: "web-up", ServiceID: theService},
}

// modelCatalog is the content of the catalog. A row without an index is not there.
type modelCatalog struct {
	node    catalog.Node
	service catalog.Service
	checks  [len(modelChecks)]modelCheck
}

type modelCheck struct {
	catalog.Check
	deadline time.Time // when it becomes critical; zero: never by itself
}

func (c *modelCheck) there() bool { return c.CreateIndex > 0 }

// binds reports whether the session is bound to the check: N17.
func (c *modelCheck) binds(info lockd.SessionInfo) bool {
	return strings.EqualFold(info.Node, c.Node) &&
		slices.ContainsFunc(info.Checks, func(id string) bool {
			return strings.EqualFold(id, c.ID)
		})
}

// begin begins the TTL: N8.
func (c *modelCheck) begin(now time.Time) {
	c.deadline = time.Time{}
	if c.there() && c.TTL > 0 && c.Status != catalog.Critical {
		c.deadline = now.Add(c.TTL)
	}
}

// check is the place of a check, which need not be there.
func (c *modelCatalog) check(node, id string) *modelCheck {
	return &c.checks[slices.IndexFunc(modelChecks[:], func(place catalog.Check) bool {
		return strings.EqualFold(place.Node, node) && strings.EqualFold(place.ID, id)
	})]
}

// has reports whether there is such a node.
func (c *modelCatalog) has(node string) bool { return node == ownNode || c.node.CreateIndex > 0 }

// bindable is S16 to S18.
func (c *modelCatalog) bindable(info lockd.SessionInfo) error {
	if !c.has(info.Node) {
		return catalog.ErrNoNode
	}
	for _, id := range info.Checks {
		switch check := c.check(info.Node, id); {
		case !check.there():
			return catalog.ErrNoCheck
		case check.Status == catalog.Critical:
			return catalog.ErrCheckCritical
		}
	}
	return nil
}

// putNode is N1; a change of the address ends nothing (S30).
func (tx *modelTx) putNode(node catalog.Node) {
	old := tx.m.catalog.node
	node.CreateIndex, node.ModifyIndex = old.CreateIndex, old.ModifyIndex
	if sameNode(old, node) {
		return
	}
	tx.stamp(&node.CreateIndex, &node.ModifyIndex)
	tx.m.catalog.node = node
}

// putService is N1.
func (tx *modelTx) putService(service catalog.Service) error {
	if !tx.m.catalog.has(service.Node) {
		return catalog.ErrNoNode
	}
	old := tx.m.catalog.service
	service.CreateIndex, service.ModifyIndex = old.CreateIndex, old.ModifyIndex
	if sameService(old, service) {
		return nil
	}
	tx.stamp(&service.CreateIndex, &service.ModifyIndex)
	tx.m.catalog.service = service
	return nil
}

// stamp gives a written row its indexes.
func (tx *modelTx) stamp(create, modify *uint64) {
	if *create == 0 {
		*create = tx.index
	}
	*modify, tx.wrote = tx.index, true
}

// putCheck is N1.
func (tx *modelTx) putCheck(check catalog.Check) error {
	switch c := &tx.m.catalog; {
	case !c.has(check.Node):
		return catalog.ErrNoNode
	case check.ServiceID != "" && c.service.CreateIndex == 0:
		return catalog.ErrNoService
	}
	place := tx.m.catalog.check(check.Node, check.ID)
	before := *place
	tx.setCheck(place, check)
	switch {
	case !sameCheck(before.Check, place.Check):
		tx.count("put")
	case !place.deadline.Equal(before.deadline):
		tx.count("put again")
	}
	return nil
}

// setCheck is the effect of a write of a check, by whatever operation: N3 and N8.
func (tx *modelTx) setCheck(place *modelCheck, check catalog.Check) {
	if check.Status == catalog.Critical {
		tx.endBound(place, catalog.ErrCheckCritical)
	}
	check.CreateIndex, check.ModifyIndex = place.CreateIndex, place.ModifyIndex
	if !sameCheck(place.Check, check) {
		tx.stamp(&check.CreateIndex, &check.ModifyIndex)
		place.Check = check
	}
	place.begin(tx.m.now)
}

// lapse is N8.
func (tx *modelTx) lapse(place *modelCheck) {
	check := place.Check
	check.Status, check.Output = catalog.Critical, "TTL expired"
	tx.setCheck(place, check)
	tx.count("lapsed")
	if len(tx.ends) > 0 {
		tx.count("lapsed with sessions")
	}
}

// deleteCheck is S30.
func (tx *modelTx) deleteCheck(node, id string) bool {
	return tx.removeCheck(tx.m.catalog.check(node, id))
}

func (tx *modelTx) removeCheck(place *modelCheck) bool {
	if !place.there() {
		return false
	}
	tx.endBound(place, catalog.ErrCheckGone)
	*place, tx.wrote = modelCheck{}, true
	tx.count("deleted")
	return true
}

// deleteService is N4.
func (tx *modelTx) deleteService() bool {
	c := &tx.m.catalog
	if c.service.CreateIndex == 0 {
		return false
	}
	for i := range c.checks {
		if c.checks[i].ServiceID != "" {
			tx.removeCheck(&c.checks[i])
		}
	}
	c.service, tx.wrote = catalog.Service{}, true
	return true
}

// deleteNode is N4.
func (tx *modelTx) deleteNode() bool {
	c := &tx.m.catalog
	if c.node.CreateIndex == 0 {
		return false
	}
	for _, s := range slices.Clone(tx.m.live) {
		if s.info.Node != ownNode {
			tx.end(s, catalog.ErrNodeGone)
		}
	}
	for i := range c.checks {
		if c.checks[i].Node == otherNode {
			c.checks[i] = modelCheck{}
			tx.count("gone with its node")
		}
	}
	c.node, c.service, tx.wrote = catalog.Node{}, catalog.Service{}, true
	return true
}

// endBound ends the sessions that are bound to the check.
func (tx *modelTx) endBound(place *modelCheck, cause error) {
	for _, s := range slices.Clone(tx.m.live) {
		if place.binds(s.info) {
			tx.end(s, cause)
			tx.count("ended: " + cause.Error())
		}
	}
}

// count counts what happened to checks, once it is durable.
func (tx *modelTx) count(what string) { tx.tell(func() { tx.m.counts[what]++ }) }

// countUndone counts what a commit that failed takes back.
func (m *model) countUndone(before modelState) {
	for key, shares := range before.shares {
		if now := len(m.shares[key]); now < len(shares) {
			m.counts["end of a share undone"]++
		} else if now > len(shares) {
			m.counts["share undone"]++
		}
	}
	for i, old := range before.catalog.checks {
		switch lapsed := !old.deadline.IsZero() && !m.now.Before(old.deadline); {
		case lapsed:
			m.counts["lapse undone"]++
		case old.deadline != m.catalog.checks[i].deadline:
			m.counts["put undone"]++
		}
	}
}

// neverCounted returns the things that have to happen and never did.
func neverCounted(counts map[string]int, onFile bool) (never []string) {
	all := []string{
		"put", "put again", "lapsed", "lapsed with sessions", "lapsed beside others", "deleted",
		"gone with its node", "session refused", "ended: " + catalog.ErrCheckCritical.Error(),
		"ended: " + catalog.ErrCheckGone.Error(),
		"lock shared by several", "share taken over", "grant with several handles", "downgrade",
		"key gone with its last sharer", "key deleted with the last session that shared it",
		"delay after the loss of exclusive", "delay after the loss of shared",
		"held too long, exclusive", "held too long, shared", "wait told", "shared key over HTTP",
	}
	if onFile {
		all = append(all, "lapse undone", "put undone", "begun by Open", "share undone",
			"end of a share undone", "share kept by Open")
	}
	for _, what := range all {
		if counts[what] == 0 {
			never = append(never, what)
		}
	}
	return never
}

// catalogEvents are the net changes of the catalog.
func (tx *modelTx) catalogEvents() []lockd.Event {
	old, new := &tx.before.catalog, &tx.m.catalog
	var events []lockd.Event
	add := func(put, deleted catalog.ChangeKind, node, id string, old, new uint64) {
		kind := put
		if new == 0 {
			kind = deleted
		}
		if old != new {
			events = append(events, nodeEvent(tx.index, kind, node, id))
		}
	}
	add(catalog.NodePut, catalog.NodeDeleted, otherNode, "",
		old.node.ModifyIndex, new.node.ModifyIndex)
	add(catalog.ServicePut, catalog.ServiceDeleted, otherNode, theService,
		old.service.ModifyIndex, new.service.ModifyIndex)
	for i, place := range modelChecks {
		add(catalog.CheckPut, catalog.CheckDeleted, place.Node, place.ID,
			old.checks[i].ModifyIndex, new.checks[i].ModifyIndex)
	}
	return events
}

// nodeEvent is a change of a node, or of what belongs to it.
func nodeEvent(index uint64, kind catalog.ChangeKind, node, id string) lockd.Event {
	return lockd.Event{
		Index: index, Kind: lockd.CatalogChanged,
		Catalog: catalog.Change{Kind: kind, Node: node, ID: id},
	}
}

// compareCatalog compares the whole catalog, except for the process's own node.
func (w *twin) compareCatalog(s *lockd.Snapshot) error {
	want := &w.m.catalog
	if node, _ := s.Catalog().Node(otherNode); !sameNode(node, want.node) {
		return fmt.Errorf("node: got %+v\nwant %+v", node, want.node)
	}
	service, _ := s.Catalog().Service(otherNode, theService)
	if !sameService(service, want.service) {
		return fmt.Errorf("service: got %+v\nwant %+v", service, want.service)
	}
	var checks []catalog.Check
	for _, check := range want.checks {
		if check.there() {
			checks = append(checks, check.Check)
		}
	}
	if got := slices.Collect(s.Catalog().Checks("")); !slices.EqualFunc(got, checks, sameCheck) {
		return fmt.Errorf("checks: got %+v\nwant %+v", got, checks)
	}
	return nil
}

func sameNode(a, b catalog.Node) bool {
	return a.Name == b.Name && a.ID == b.ID && a.Address == b.Address &&
		a.CreateIndex == b.CreateIndex && a.ModifyIndex == b.ModifyIndex
}

func sameService(a, b catalog.Service) bool {
	return a.Node == b.Node && a.ID == b.ID && a.Name == b.Name && a.Port == b.Port &&
		a.CreateIndex == b.CreateIndex && a.ModifyIndex == b.ModifyIndex
}

func sameCheck(a, b catalog.Check) bool {
	return a.Node == b.Node && a.ID == b.ID && a.Status == b.Status && a.Output == b.Output &&
		a.ServiceID == b.ServiceID && a.TTL == b.TTL && a.CreateIndex == b.CreateIndex &&
		a.ModifyIndex == b.ModifyIndex
}

// What the numbers of an operation mean.

// binding is the node of a session and its checks, spelled in one way or another.
func (w *twin) binding(o op) (node string, checks []string) {
	switch o.d {
	case 2, 3, 4, 8:
		checks = []string{"beat"}
	case 9, 12:
		node, checks = otherNode, []string{"health", "web-up"}
	case 10, 15:
		node, checks = otherNode, []string{"web-up"}
	case 11:
		node = otherNode
	case 13, 14:
		node, checks = "OTHER", []string{"Health"}
	}
	if o.c%8 == 0 {
		return node, checks
	}
	if node != "" && !w.m.catalog.has(node) {
		return "", nil
	}
	return node, slices.DeleteFunc(checks, func(id string) bool { // it would be refused
		check := w.m.catalog.check(cmp.Or(node, ownNode), id)
		return !check.there() || check.Status == catalog.Critical
	})
}

// check is a check as a user might put it.
func (o op) check() catalog.Check {
	check := modelChecks[o.b%len(modelChecks)]
	check.Status = []catalog.Status{
		catalog.Passing, catalog.Warning, catalog.Passing, catalog.Critical,
	}[o.c%4]
	check.TTL = []time.Duration{10, 5, 0, 15, 0}[o.a%5] * time.Second
	return check
}

// beat is the check as it is, or was before it became critical.
func (w *twin) beat(o op) catalog.Check {
	check := o.check()
	check.Status = catalog.Passing
	if place := w.m.catalog.check(check.Node, check.ID); place.there() {
		check.TTL = place.TTL
		if place.Status != catalog.Critical {
			check = place.Check
		}
	}
	return check
}

// catalogDeed is an operation on the catalog that is a transaction of its own.
func (w *twin) catalogDeed(o op) deed {
	real, rule := w.catalogPart(o)
	return deed{rule: rule, call: func() (got any, err error) {
		err = w.db.Update(func(tx *lockd.Txn) (err error) {
			got, err = real(tx)
			return err
		})
		return got, err
	}}
}

// catalogPart is an operation on the catalog within a transaction.
func (w *twin) catalogPart(
	o op,
) (func(tx *lockd.Txn) (any, error), func(tx *modelTx) (any, error)) {
	check := o.check()
	switch o.kind {
	case "beat":
		check = w.beat(o)
		fallthrough
	case "putCheck":
		return func(tx *lockd.Txn) (any, error) { return nil, tx.Catalog().PutCheck(check) },
			func(tx *modelTx) (any, error) { return nil, tx.putCheck(check) }
	}
	switch o.c % 8 {
	case 3:
		return renameNode, func(tx *modelTx) (any, error) {
			tx.wrote = true
			tx.deleteNode()
			return true, nil
		}
	case 4:
		return func(tx *lockd.Txn) (any, error) { return tx.Catalog().DeleteNode("OTHER") },
			func(tx *modelTx) (any, error) { return tx.deleteNode(), nil }
	case 5:
		return func(tx *lockd.Txn) (any, error) {
				return tx.Catalog().DeleteService(otherNode, "Web")
			},
			func(tx *modelTx) (any, error) { return tx.deleteService(), nil }
	case 2, 6, 7:
		id := strings.ToUpper(check.ID)
		return func(tx *lockd.Txn) (any, error) { return tx.Catalog().DeleteCheck(check.Node, id) },
			func(tx *modelTx) (any, error) { return tx.deleteCheck(check.Node, id), nil }
	}
	return o.register()
}

// renameNode has a new node take the place of the other node (N5), and deletes the new one.
func renameNode(tx *lockd.Txn) (any, error) {
	node := catalog.Node{Name: "another", ID: otherID}
	if err := tx.Catalog().PutNode(node); err != nil {
		return nil, err
	}
	return tx.Catalog().DeleteNode(node.Name)
}

// register puts the other node, its service, and the check with the number.
func (o op) register() (func(tx *lockd.Txn) (any, error), func(tx *modelTx) (any, error)) {
	node := catalog.Node{
		Name: otherNode, ID: otherID, Address: []string{"here", "there"}[o.d%2],
	}
	service := catalog.Service{Node: otherNode, ID: theService, Name: theService, Port: o.c % 2}
	check := o.check()
	check.Status = catalog.Passing
	return func(tx *lockd.Txn) (any, error) {
			return nil, errors.Join(tx.Catalog().PutNode(node), tx.Catalog().PutService(service),
				tx.Catalog().PutCheck(check))
		}, func(tx *modelTx) (any, error) {
			tx.putNode(node)
			return nil, errors.Join(tx.putService(service), tx.putCheck(check))
		}
}
