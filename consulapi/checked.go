package consulapi

import (
	"iter"
	"slices"

	"github.com/lockd/lockd/catalog"
)

// checkedSize is how many services checkedOf finds the checks of at a time.
const checkedSize = 128

// checked is a service with its node and the checks that count for it.
type checked struct {
	state       *catalog.Snapshot
	node        catalog.Node
	service     catalog.Service
	shared, own *checkSet // of the node, and of the service
}

// checkSet is some checks of one node.
type checkSet struct {
	ids   []string
	worst catalog.Status // passing if there are none
}

func (s *checkSet) add(c catalog.Check) {
	s.ids = append(s.ids, c.ID)
	s.worst = min(s.worst, c.Status)
}

// checkedOf yields the services in their order, each with its node and its checks. It leaves out
// the checks with ignored IDs. It takes checkedSize services at a time, and goes once through the
// checks of each of their nodes. It keeps the IDs of only those checks that count for these
// services.
func checkedOf(
	state *catalog.Snapshot, services iter.Seq2[catalog.Node, catalog.Service], ignored []string,
) iter.Seq[checked] {
	return func(yield func(checked) bool) {
		var next []checked
		flush := func() bool {
			findChecks(next, ignored)
			for _, c := range next {
				if !yield(c) {
					return false
				}
			}
			next = next[:0]
			return true
		}
		for n, s := range services {
			next = append(next, checked{state: state, node: n, service: s})
			if len(next) == checkedSize && !flush() {
				return
			}
		}
		flush()
	}
}

// findChecks sets the checks of the services.
func findChecks(services []checked, ignored []string) {
	type place struct{ node, service string } // folded; no service: of the node
	found := make(map[place]*checkSet)
	setOf := func(node, service string) *checkSet {
		at := place{folded(node), folded(service)}
		if found[at] == nil {
			found[at] = &checkSet{worst: catalog.Passing}
		}
		return found[at]
	}
	var nodes []string
	for i := range services {
		c := &services[i]
		if _, again := found[place{folded(c.service.Node), ""}]; !again {
			nodes = append(nodes, c.service.Node)
		}
		c.shared, c.own = setOf(c.service.Node, ""), setOf(c.service.Node, c.service.ID)
	}
	for _, node := range nodes {
		for c := range services[0].state.Checks(node) {
			set := found[place{folded(node), folded(c.ServiceID)}]
			if set != nil && !slices.Contains(ignored, c.ID) {
				set.add(c)
			}
		}
	}
}

// health returns the worst status of the checks.
func (c *checked) health() catalog.Status { return min(c.shared.worst, c.own.worst) }

// checks shows the checks, first the node's, which belong to no service.
func (c *checked) checks() list[check] {
	return func(yield func(check) bool) {
		for i, id := range slices.Concat(c.shared.ids, c.own.ids) {
			row, _ := c.state.Check(c.service.Node, id)
			of := c.service
			if i < len(c.shared.ids) {
				of = catalog.Service{}
			}
			if !yield(newCheck(row, of)) {
				return
			}
		}
	}
}
