package lockd_test

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// register makes the node "db1" with the service "mysql", a check of its own, "disk", and one of
// the service, "ping". Both pass.
func (h *harness) register() {
	h.t.Helper()
	h.must(h.Update(func(tx *lockd.Txn) error {
		return errors.Join(
			tx.Catalog().PutNode(catalog.Node{Name: "db1", ID: "id-of-db1"}),
			tx.Catalog().PutService(catalog.Service{Node: "db1", Name: "mysql"}),
			tx.Catalog().PutCheck(catalog.Check{
				Node: "db1", Name: "disk", Status: catalog.Passing,
			}),
			tx.Catalog().PutCheck(catalog.Check{
				Node: "db1", Name: "ping", Status: catalog.Passing, ServiceID: "mysql",
			}),
		)
	}))
}

// txn does one operation of a transaction.
func (h *harness) txn(op func(tx *lockd.Txn) error) error { return h.Update(op) }

// registered is everything in the catalog, in words.
func (h *harness) registered() []string {
	var all []string
	s := h.Snapshot()
	for n := range s.Catalog().Nodes() {
		all = append(all, "node "+n.Name)
	}
	for v := range s.Catalog().Services("") {
		all = append(all, "service "+v.Node+"/"+v.ID)
	}
	for c := range s.Catalog().Checks("") {
		all = append(all, "check "+c.Node+"/"+c.ID)
	}
	for a := range s.Catalog().Attachments("") {
		all = append(all, "attachment "+a.Name)
	}
	return all
}

var whole = []string{
	"node db1", "node local", "service db1/mysql", "check db1/disk", "check db1/ping",
}

// Ensure that nodes, services and checks are read as they were registered, with the indexes of
// their creation and last change, after a restart too.
func TestCatalog_N1_Registers(t *testing.T) {
	each(t, func(h *harness) {
		node := catalog.Node{Name: "db1", ID: "1", Address: "10.0.0.1",
			Meta: map[string]string{"rack": "7"}}
		service := catalog.Service{Node: "db1", ID: "m1", Name: "mysql", Address: "10.0.0.2",
			Port: 3306, Tags: []string{"a", "b"}, Meta: map[string]string{"v": "8"}}
		check := catalog.Check{Node: "db1", ID: "c1", Name: "ping", Status: catalog.Warning,
			Notes: "note", Output: "out", ServiceID: "m1"}
		register := func(tx *lockd.Txn) error {
			return errors.Join(tx.Catalog().PutNode(node), tx.Catalog().PutService(service),
				tx.Catalog().PutCheck(check))
		}
		h.must(h.txn(register))
		created := h.Snapshot().Index()
		node.Address, service.Port, check.Output = "10.0.0.9", 3307, "another"
		h.must(h.txn(register))
		changed := h.Snapshot().Index()
		node.CreateIndex, node.ModifyIndex = created, changed
		service.CreateIndex, service.ModifyIndex = created, changed
		check.CreateIndex, check.ModifyIndex = created, changed

		look := func() {
			h.t.Helper()
			s := h.Snapshot()
			gotNode, _ := s.Catalog().Node("db1")
			gotService, _ := s.Catalog().Service("db1", "m1")
			gotCheck, _ := s.Catalog().Check("db1", "c1")
			for _, pair := range [][2]any{
				{gotNode, node}, {gotService, service}, {gotCheck, check},
			} {
				if !reflect.DeepEqual(pair[0], pair[1]) {
					h.t.Errorf("got %+v, want %+v", pair[0], pair[1])
				}
			}
			h.must(h.txn(func(tx *lockd.Txn) error {
				n, _ := tx.Catalog().Node("db1")
				v, _ := tx.Catalog().Service("db1", "m1")
				c, _ := tx.Catalog().Check("db1", "c1")
				if !reflect.DeepEqual([]any{n, v, c}, []any{node, service, check}) {
					h.t.Errorf("in a transaction: got %+v, %+v, %+v", n, v, c)
				}
				return nil
			}))
		}
		look()
		if h.path != "" {
			h.reopen()
			look()
		}
	})
}

// Ensure that an empty ID of a service or a check means its name.
func TestCatalog_N1_IDIsTheName(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		v, _ := h.Snapshot().Catalog().Service("db1", "mysql")
		c, _ := h.Snapshot().Catalog().Check("db1", "disk")
		if v.ID != "mysql" || c.ID != "disk" {
			h.t.Errorf("got %q and %q", v.ID, c.ID)
		}
	})
}

// Ensure that whatever the catalog takes can be committed and backed up: the longest names, too.
func TestCatalog_N1_LongestNames(t *testing.T) {
	each(t, func(h *harness) {
		names := map[string]string{ // of nodes, with the longest ID beside each
			strings.Repeat("N", lockd.MaxKeySize): strings.Repeat("i", lockd.MaxKeySize-1),
			// Each letter is a byte longer in lower case.
			strings.Repeat("Ⱥ", lockd.MaxKeySize/2): strings.Repeat("i", lockd.MaxKeySize/2-1),
		}
		for longest, id := range names {
			h.must(h.Update(func(tx *lockd.Txn) error {
				err := errors.Join(
					tx.Catalog().PutNode(catalog.Node{Name: longest}),
					tx.Catalog().PutService(catalog.Service{Node: longest, Name: id}),
					tx.Catalog().PutCheck(catalog.Check{Node: longest, ID: id, ServiceID: id}))
				for _, refused := range []error{
					tx.Catalog().PutService(catalog.Service{Node: longest, Name: id + "i"}),
					tx.Catalog().PutCheck(catalog.Check{Node: longest, ID: id + "i"}),
				} {
					if !errors.Is(refused, lockd.ErrInvalid) {
						h.t.Errorf("one more byte: got %v", refused)
					}
				}
				return err
			}))
		}
		var backup bytes.Buffer
		h.must(h.Backup(&backup))
		h.must(h.Restore(&backup))
		for longest, id := range names {
			if _, found := h.Snapshot().Catalog().Check(longest, id); !found {
				h.t.Errorf("the check is gone of a node with %d bytes", len(longest))
			}
		}
	})
}

// Ensure that an invalid entry, or one without its node or service, is refused unwritten.
func TestCatalog_N1_Refuses(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		index := h.Snapshot().Index()
		long := strings.Repeat("n", lockd.MaxKeySize+1)
		for name, test := range map[string]struct {
			op  func(tx *lockd.Txn) error
			err error
		}{
			"node without a name": {func(tx *lockd.Txn) error {
				return tx.Catalog().PutNode(catalog.Node{ID: "x"})
			}, lockd.ErrInvalid},
			"node with a long name": {func(tx *lockd.Txn) error {
				return tx.Catalog().PutNode(catalog.Node{Name: long})
			}, lockd.ErrInvalid},
			"service with a long ID": {func(tx *lockd.Txn) error {
				return tx.Catalog().PutService(catalog.Service{Node: "db1", ID: long, Name: "x"})
			}, lockd.ErrInvalid},
			"check with a long ID": {func(tx *lockd.Txn) error {
				return tx.Catalog().PutCheck(catalog.Check{Node: "db1", ID: long})
			}, lockd.ErrInvalid},
			"node with a zero byte": {func(tx *lockd.Txn) error {
				return tx.Catalog().PutNode(catalog.Node{Name: "a\x00b"})
			}, lockd.ErrInvalid},
			"node that is not UTF-8": {func(tx *lockd.Txn) error {
				return tx.Catalog().PutNode(catalog.Node{Name: "A" + strings.Repeat("\xff",
					lockd.MaxKeySize-1)})
			}, lockd.ErrInvalid},
			"service without a name": {func(tx *lockd.Txn) error {
				return tx.Catalog().PutService(catalog.Service{Node: "db1", ID: "x"})
			}, lockd.ErrInvalid},
			"service without its node": {func(tx *lockd.Txn) error {
				return tx.Catalog().PutService(catalog.Service{Node: "db2", Name: "x"})
			}, catalog.ErrNoNode},
			"check without a name": {func(tx *lockd.Txn) error {
				return tx.Catalog().PutCheck(catalog.Check{Node: "db1"})
			}, lockd.ErrInvalid},
			"check without its node": {func(tx *lockd.Txn) error {
				return tx.Catalog().PutCheck(catalog.Check{Node: "db2", Name: "x"})
			}, catalog.ErrNoNode},
			"check without its service": {func(tx *lockd.Txn) error {
				return tx.Catalog().PutCheck(catalog.Check{
					Node: "db1", Name: "x", ServiceID: "redis",
				})
			}, catalog.ErrNoService},
			"check with an unknown status": {func(tx *lockd.Txn) error {
				return tx.Catalog().PutCheck(catalog.Check{Node: "db1", Name: "x", Status: 3})
			}, lockd.ErrInvalid},
		} {
			if err := h.txn(test.op); !errors.Is(err, test.err) {
				h.t.Errorf("%s: got %v", name, err)
			}
		}
		if !slices.Equal(h.registered(), whole) || h.Snapshot().Index() != index {
			h.t.Errorf("something was written: %v at %d", h.registered(), h.Snapshot().Index())
		}
	})
}

// Ensure that a check without a status is critical.
func TestCatalog_N2(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		h.must(h.txn(func(tx *lockd.Txn) error {
			return tx.Catalog().PutCheck(catalog.Check{Node: "db1", Name: "new"})
		}))
		if c, _ := h.Snapshot().Catalog().Check("db1", "new"); c.Status != catalog.Critical {
			h.t.Errorf("status: got %v", c.Status)
		}
		_, err := h.NewSession(&lockd.SessionOptions{Node: "db1", Checks: []string{"new"}})
		if !errors.Is(err, catalog.ErrCheckCritical) {
			h.t.Errorf("session: got %v", err)
		}
	})
}

// Ensure that a check that is written as critical ends all its sessions in that transaction, and
// that later operations of the transaction see their keys released.
func TestCatalog_N3N13T13(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		opts := lockd.SessionOptions{Node: "db1", Checks: []string{"ping"},
			LockDelay: lockd.NoLockDelay}
		a, b, free := h.session(&opts), h.session(&opts), h.session(nil)
		h.lock(a, "a")
		h.lock(b, "b")
		var index uint64
		h.must(h.txn(func(tx *lockd.Txn) error {
			index = tx.Index()
			h.must(tx.Catalog().PutCheck(catalog.Check{
				Node: "db1", Name: "ping", Status: catalog.Critical,
			}))
			h.heldIn(tx, "a", lockd.SessionID{})
			return second(tx.Lock("b", free.ID(), nil))
		}))
		for _, s := range []*lockd.Session{a, b} {
			if !errors.Is(s.Err(), catalog.ErrCheckCritical) {
				h.t.Errorf("session: got %v", s.Err())
			}
			if at := h.Snapshot().IndexOf(lockd.SessionScope(s.ID())); at != index {
				h.t.Errorf("ended at %d, want %d", at, index)
			}
		}
		if e := h.entry("b"); e.Session != free.ID() || e.Fence != index || free.Err() != nil {
			h.t.Errorf("got %+v, %v", e, free.Err())
		}
		if c, _ := h.Snapshot().Catalog().Check("db1", "ping"); c.ModifyIndex != index {
			h.t.Errorf("check: got %+v", c)
		}
	})
}

// Ensure that a transaction that is undone leaves the catalog and its sessions as they were.
func TestCatalog_N13T8_Undone(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		s := h.session(&lockd.SessionOptions{Node: "db1", Checks: []string{"ping"}})
		h.lock(s, "k")
		index, mine := h.Snapshot().Index(), errors.New("mine")
		err := h.txn(func(tx *lockd.Txn) error {
			h.must(second(tx.Catalog().DeleteNode("db1")))
			h.must(tx.Catalog().PutNode(catalog.Node{Name: "db2"}))
			return mine
		})
		if !errors.Is(err, mine) {
			h.t.Fatalf("update: got %v", err)
		}
		if s.Err() != nil || h.entry("k").Session != s.ID() {
			h.t.Errorf("session: %v, key %+v", s.Err(), h.entry("k"))
		}
		if !slices.Equal(h.registered(), whole) || h.Snapshot().Index() != index {
			h.t.Errorf("catalog: %v at %d", h.registered(), h.Snapshot().Index())
		}
		h.must(h.txn(func(tx *lockd.Txn) error { return second(tx.Catalog().DeleteNode("db1")) }))
		if !errors.Is(s.Err(), catalog.ErrNodeGone) {
			h.t.Errorf("after the removal: got %v", s.Err())
		}
	})
}

// Ensure that a removal also removes what belongs to the removed thing, in one step at one index,
// and that the sessions bound to it have ended when it returns.
func TestCatalog_N4N9(t *testing.T) {
	for name, test := range map[string]struct {
		remove func(tx *lockd.Txn) (bool, error)
		left   []string
		ends   map[string]error // of the sessions bound to these checks
	}{
		"Node": {
			func(tx *lockd.Txn) (bool, error) { return tx.Catalog().DeleteNode("DB1") },
			[]string{"node local"},
			map[string]error{
				"": catalog.ErrNodeGone, "disk": catalog.ErrNodeGone, "ping": catalog.ErrNodeGone,
			},
		},
		"Service": {
			func(tx *lockd.Txn) (bool, error) { return tx.Catalog().DeleteService("DB1", "MySQL") },
			[]string{"node db1", "node local", "check db1/disk"},
			map[string]error{"": nil, "disk": nil, "ping": catalog.ErrCheckGone},
		},
		"Check": {
			func(tx *lockd.Txn) (bool, error) { return tx.Catalog().DeleteCheck("DB1", "Disk") },
			[]string{"node db1", "node local", "service db1/mysql", "check db1/ping"},
			map[string]error{"": nil, "disk": catalog.ErrCheckGone, "ping": nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(h *harness) {
				h.register()
				bound := make(map[string]*lockd.Session)
				for check := range test.ends {
					opts := lockd.SessionOptions{Node: "Db1"}
					if check != "" {
						opts.Checks = []string{strings.ToUpper(check)}
					}
					bound[check] = h.session(&opts)
				}
				foreign := h.session(nil)
				index := h.Snapshot().Index()
				remove := func() (was bool) {
					h.must(h.txn(func(tx *lockd.Txn) (err error) {
						was, err = test.remove(tx)
						return err
					}))
					return was
				}
				if !remove() {
					h.t.Errorf("not reported as removed")
				}
				for check, cause := range test.ends {
					if err := bound[check].Err(); !errors.Is(err, cause) {
						h.t.Errorf("session of %q: got %v, want %v", check, err, cause)
					}
				}
				if foreign.Err() != nil {
					h.t.Errorf("a session elsewhere: %v", foreign.Err())
				}
				if !slices.Equal(h.registered(), test.left) || h.Snapshot().Index() != index+1 {
					h.t.Errorf("left: %v at %d", h.registered(), h.Snapshot().Index()-index)
				}
				if remove() || h.Snapshot().Index() != index+1 {
					h.t.Errorf("removed twice, at %d", h.Snapshot().Index()-index)
				}
			})
		})
	}
}

// Ensure that a node with the ID of another takes its place, and that the sessions of the old node
// end in the same step.
func TestCatalog_N5X36(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		s := h.session(&lockd.SessionOptions{Node: "db1"})
		h.lock(s, "k")
		index := h.Snapshot().Index() + 1
		h.must(h.txn(func(tx *lockd.Txn) error {
			return tx.Catalog().PutNode(catalog.Node{Name: "db2", ID: "id-of-db1"})
		}))
		if !slices.Equal(h.registered(), []string{"node db2", "node local"}) {
			h.t.Errorf("left: %v", h.registered())
		}
		n, _ := h.Snapshot().Catalog().Node("db2")
		if !errors.Is(s.Err(), catalog.ErrNodeGone) || h.entry("k").ModifyIndex != index ||
			n.CreateIndex != index || h.Snapshot().Index() != index {
			h.t.Errorf("got %v, %+v, %+v, want index %d", s.Err(), h.entry("k"), n, index)
		}
	})
}

// Ensure that neither another address, nor another case of the name, nor a new ID is a renaming.
func TestCatalog_N5_NoRenaming(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		s := h.session(&lockd.SessionOptions{Node: "db1", Checks: []string{"disk"}})
		for _, node := range []catalog.Node{
			{Name: "db1", ID: "id-of-db1", Address: "10.0.0.1"},
			{Name: "DB1", ID: "id-of-db1"},
			{Name: "db1", ID: "another"},
			{Name: "db1"},
			{Name: "db2"}, // an empty ID is no ID
			{Name: "db3"},
		} {
			h.must(h.txn(func(tx *lockd.Txn) error { return tx.Catalog().PutNode(node) }))
		}
		if s.Err() != nil {
			h.t.Errorf("session: %v", s.Err())
		}
		want := []string{"node db1", "node db2", "node db3", "node local"}
		if got := h.registered(); !slices.Equal(got[:4], want) {
			h.t.Errorf("got %v", got)
		}
	})
}

// Ensure that a session ends once, with its first cause, though its check and its node go in the
// same step.
func TestCatalog_N4N9_EndsOnce(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		s := h.session(&lockd.SessionOptions{Node: "db1", Checks: []string{"disk"}})
		before := h.Stats()
		h.must(h.txn(func(tx *lockd.Txn) error {
			return errors.Join(
				tx.EndSession(s.ID()),
				second(tx.Catalog().DeleteCheck("db1", "disk")),
				second(tx.Catalog().DeleteNode("db1")),
			)
		}))
		after, want := h.Stats(), before
		want.Ends.Destroyed++
		if after.Ends != want.Ends || after.Sessions != before.Sessions-1 {
			h.t.Errorf("got %d sessions and %+v, want %d and %+v", after.Sessions, after.Ends,
				before.Sessions-1, want.Ends)
		}
		if !errors.Is(s.Err(), lockd.ErrDestroyed) {
			h.t.Errorf("got %v, want %v", s.Err(), lockd.ErrDestroyed)
		}
	})
}

// Ensure that a critical check that is new on a node, or on a service, ends no session.
func TestCatalog_N10N11X23(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		s := h.session(&lockd.SessionOptions{Node: "db1", Checks: []string{"disk", "ping"}})
		for _, check := range []catalog.Check{
			{Node: "db1", Name: "fan"},
			{Node: "db1", Name: "log", ServiceID: "mysql"},
			{Node: "local", Name: "disk"},
		} {
			h.must(h.txn(func(tx *lockd.Txn) error { return tx.Catalog().PutCheck(check) }))
		}
		if s.Err() != nil {
			h.t.Errorf("ended: %v", s.Err())
		}
	})
}

// Ensure that a session can be made on a node that has no check.
func TestCatalog_N15(t *testing.T) {
	each(t, func(h *harness) {
		h.must(h.txn(func(tx *lockd.Txn) error {
			return tx.Catalog().PutNode(catalog.Node{Name: "bare"})
		}))
		if s := h.session(&lockd.SessionOptions{Node: "bare"}); s.Info().Node != "bare" {
			h.t.Errorf("got %+v", s.Info())
		}
	})
}

// Ensure that names of nodes, services and checks are the same in every case, also for a session
// that is bound to them.
func TestCatalog_N17S39(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		s := h.session(&lockd.SessionOptions{Node: "DB1", Checks: []string{"Ping"}})
		snap := h.Snapshot()
		_, node := snap.Catalog().Node("Db1")
		_, service := snap.Catalog().Service("dB1", "MYSQL")
		_, check := snap.Catalog().Check("dB1", "PING")
		if !node || !service || !check {
			h.t.Errorf("found: node %v, service %v, check %v", node, service, check)
		}
		if n := len(slices.Collect(snap.Catalog().Checks("DB1"))); n != 2 {
			h.t.Errorf("checks of the node: got %d", n)
		}
		h.must(h.txn(func(tx *lockd.Txn) error {
			return tx.Catalog().PutCheck(catalog.Check{Node: "dB1", Name: "PinG"})
		}))
		if !errors.Is(s.Err(), catalog.ErrCheckCritical) {
			h.t.Errorf("session: got %v", s.Err())
		}
		if n := len(slices.Collect(h.Snapshot().Catalog().Checks(""))); n != 2 {
			h.t.Errorf("checks: got %d", n)
		}
	})
}

// Ensure that a name that is not UTF-8, and so is the name of nothing, finds nothing, although in
// lower case it would be another name.
func TestCatalog_N17_OtherBytes(t *testing.T) {
	each(t, func(h *harness) {
		h.must(h.txn(func(tx *lockd.Txn) error {
			return errors.Join(
				tx.Catalog().PutNode(catalog.Node{Name: "\uFFFD"}),
				tx.Catalog().PutService(catalog.Service{Node: "\uFFFD", Name: "\uFFFD"}),
				tx.Catalog().PutCheck(catalog.Check{
					Node: "\uFFFD", Name: "\uFFFD", Status: catalog.Passing,
				}),
			)
		}))
		h.must(h.txn(func(tx *lockd.Txn) error {
			check, _ := tx.Catalog().DeleteCheck("\xff", "\uFFFD")
			service, _ := tx.Catalog().DeleteService("\uFFFD", "\xff")
			node, _ := tx.Catalog().DeleteNode("\xff")
			if node || service || check {
				h.t.Errorf("deleted: node %v, service %v, check %v", node, service, check)
			}
			return nil
		}))
		_, node := h.Snapshot().Catalog().Node("\xff")
		_, service := h.Snapshot().Catalog().Service("\xff", "\uFFFD")
		_, check := h.Snapshot().Catalog().Check("\uFFFD", "\xff")
		if node || service || check {
			h.t.Errorf("found: node %v, service %v, check %v", node, service, check)
		}
		_, err := h.NewSession(&lockd.SessionOptions{Node: "\xff"})
		if !errors.Is(err, catalog.ErrNoNode) {
			h.t.Errorf("a session of the node: got %v", err)
		}
	})
}

// Ensure that the text of a refusal has the beginning of a long name, and not all of it.
func TestCatalog_N1_LongNamesInErrors(t *testing.T) {
	each(t, func(h *harness) {
		long := strings.Repeat("n", 1<<20)
		for name, err := range map[string]error{
			"zero byte": h.txn(func(tx *lockd.Txn) error {
				return tx.Catalog().PutNode(catalog.Node{Name: long + "\x00"})
			}),
			"service": h.txn(func(tx *lockd.Txn) error {
				return tx.Catalog().PutCheck(catalog.Check{
					Node: "local", Name: "c", ServiceID: long,
				})
			}),
			"node": h.txn(func(tx *lockd.Txn) error {
				return tx.Catalog().PutService(catalog.Service{Node: long, Name: "s", ID: "s"})
			}),
			"check": second(h.NewSession(&lockd.SessionOptions{Checks: []string{long}})),
		} {
			if err == nil || len(err.Error()) > 300 {
				h.t.Errorf("%s: got %.400v", name, err)
			}
		}
	})
}

// Ensure that reading what is not there finds nothing.
func TestCatalog_S37(t *testing.T) {
	each(t, func(h *harness) {
		s := h.Snapshot()
		n, node := s.Catalog().Node("nobody")
		v, service := s.Catalog().Service("nobody", "x")
		c, check := s.Catalog().Check("local", "x")
		a, attachment := s.Catalog().Attachment("x")
		i, session := s.Session(lockd.SessionID{1})
		if node || service || check || attachment || session {
			h.t.Errorf("found: %v, %v, %v, %v, %v", n, v, c, a, i)
		}
		if got := slices.Collect(s.Catalog().Services("nobody")); got != nil {
			h.t.Errorf("services: got %v", got)
		}
	})
}

// Ensure that the listings of one node have only its own services and checks.
func TestSnapshot_ListsOneNode(t *testing.T) {
	each(t, func(h *harness) {
		h.register()
		h.must(h.txn(func(tx *lockd.Txn) error {
			return errors.Join(
				tx.Catalog().PutNode(catalog.Node{Name: "db"}),
				tx.Catalog().PutNode(catalog.Node{Name: "db12"}),
				tx.Catalog().PutService(catalog.Service{Node: "db12", Name: "s"}),
				tx.Catalog().PutCheck(catalog.Check{Node: "db12", Name: "c"}),
			)
		}))
		s := h.Snapshot()
		for node, want := range map[string][2]int{"db1": {1, 2}, "db": {0, 0}, "db12": {1, 1}} {
			services := len(slices.Collect(s.Catalog().Services(node)))
			checks := len(slices.Collect(s.Catalog().Checks(node)))
			if services != want[0] || checks != want[1] {
				h.t.Errorf("%s: got %d services and %d checks", node, services, checks)
			}
		}
	})
}

// Ensure that an attachment belongs to one session, lasts as long as the session, and is gone in
// the step of the session's end.
func TestTxn_S31_Attachments(t *testing.T) {
	each(t, func(h *harness) {
		s := h.session(&lockd.SessionOptions{TTL: time.Second})
		other := h.session(nil)
		attach := func(s *lockd.Session, name, value string) error {
			return h.txn(func(tx *lockd.Txn) error {
				return tx.Catalog().Attach(s.ID(), name, []byte(value))
			})
		}
		h.must(attach(s, "a/1", "one"))
		created := h.Snapshot().Index()
		h.must(attach(s, "a/2", "two"))
		h.must(attach(other, "b", "other"))
		h.must(attach(s, "a/1", "uno"))
		index := h.Snapshot().Index()
		h.must(attach(s, "a/1", "uno")) // a no-op
		if err := attach(other, "a/1", "mine"); !errors.Is(err, lockd.ErrConflict) {
			h.t.Errorf("another's: got %v", err)
		}
		if err := attach(s, "", ""); !errors.Is(err, lockd.ErrInvalid) {
			h.t.Errorf("no name: got %v", err)
		}
		a, _ := h.Snapshot().Catalog().Attachment("a/1")
		if string(a.Value) != "uno" || a.Session != s.ID() || a.CreateIndex != created ||
			a.ModifyIndex != index || h.Snapshot().Index() != index {
			h.t.Errorf("got %+v at %d", a, h.Snapshot().Index())
		}
		if n := len(slices.Collect(h.Snapshot().Catalog().Attachments("a/"))); n != 2 {
			h.t.Errorf("listed: %d", n)
		}
		h.advance(time.Second)
		ended := h.Snapshot().IndexOf(lockd.SessionScope(s.ID()))
		if got := h.Snapshot().IndexOf(lockd.CatalogScope()); got != ended || ended != index+1 {
			h.t.Errorf("catalog moved at %d, session ended at %d", got, ended)
		}
		want := []string{"node local", "attachment b"}
		if !slices.Equal(h.registered(), want) {
			h.t.Errorf("left: %v", h.registered())
		}
		h.must(h.txn(func(tx *lockd.Txn) error {
			if was, err := tx.Catalog().Detach("b"); !was || err != nil {
				h.t.Errorf("detach: got %v, %v", was, err)
			}
			was, err := tx.Catalog().Detach("b")
			if was {
				h.t.Errorf("detached twice")
			}
			return err
		}))
		h.must(other.Close())
	})
}

// Ensure that a record without a session stays until it is detached, and that no session can change
// it.
func TestTxn_S31_KeptRecords(t *testing.T) {
	onFile(t, func(h *harness) {
		keep := func(name, value string) error {
			return h.txn(func(tx *lockd.Txn) error {
				return tx.Catalog().AttachUnowned(name, []byte(value))
			})
		}
		s := h.session(nil)
		h.must(keep("a", "one"))
		h.must(keep("a", "two"))
		attach := func(name string) error {
			return h.txn(func(tx *lockd.Txn) error {
				return tx.Catalog().Attach(s.ID(), name, nil)
			})
		}
		h.must(attach("b"))
		for _, err := range []error{keep("b", "mine"), attach("a")} {
			if !errors.Is(err, lockd.ErrConflict) {
				h.t.Errorf("got %v", err)
			}
		}
		want := `conflict: attachment "a" is owned by no session`
		if err := attach("a"); err == nil || !strings.HasSuffix(err.Error(), want) {
			h.t.Errorf("got %v, want %q", err, want)
		}
		if err := keep("", ""); !errors.Is(err, lockd.ErrInvalid) {
			h.t.Errorf("without a name: %v", err)
		}
		h.must(h.txn(func(tx *lockd.Txn) error {
			var names []string
			for a := range tx.Catalog().Attachments("") {
				names = append(names, a.Name)
			}
			for range tx.Catalog().Attachments("b") {
				break
			}
			if !slices.Equal(names, []string{"a", "b"}) {
				h.t.Errorf("in a transaction: %q", names)
			}
			return nil
		}))
		h.must(s.Close())
		h.reopen()
		a, _ := h.Snapshot().Catalog().Attachment("a")
		if string(a.Value) != "two" || !lockd.SessionID(a.Session).IsZero() ||
			a.ModifyIndex == a.CreateIndex {
			h.t.Errorf("got %+v", a)
		}
		h.must(h.txn(func(tx *lockd.Txn) error {
			_, err := tx.Catalog().Detach("a")
			return err
		}))
		if _, ok := h.Snapshot().Catalog().Attachment("a"); ok {
			h.t.Error("it is still there")
		}
	})
}
