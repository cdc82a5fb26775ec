package engine

import (
	"cmp"
	"maps"
	"slices"
)

// Deadlock is the refusal of a call that would wait for ever: for a lock whose holder waits,
// directly or through others, for a lock that the call's own context carries. Package lockd
// documents it.
type Deadlock struct {
	Steps []DeadlockStep // of the call, of the call that it waits for, and so on
}

// DeadlockStep is one call of a circle.
type DeadlockStep struct {
	Holds  Holder // the lock that this call carries, and the call before waits for
	Waiter *Waiter
	Key    string // of the lock that this call waits for, and the next call carries
}

// Error is for tests of the rules. The text for users is package lockd's.
func (d *Deadlock) Error() string {
	text := "deadlock"
	for _, step := range d.Steps {
		text += ": holds " + step.Holds.Grant.Key + " and waits for " + step.Key
	}
	return text
}

// Wait queues a call for the locks of the keys, or for a slot of the semaphore at the one key. The
// caller has filled in Session, Options, Carried, Slot and Limit, and calls SetHold for each key
// before the transaction ends. If the call would wait for ever, Wait returns a *Deadlock and leaves
// it out of the queues.
func (tx *Txn) Wait(w *Waiter, keys []string) error {
	tx.queue(w, keys)
	if w.Carried == nil { // as a rule
		return nil
	}
	if found := tx.deadlock(w); found != nil {
		tx.engine.leave(w)
		return found
	}
	return nil
}

// stuck is one waiter in the search for a circle.
type stuck struct {
	waiter    *Waiter
	obstacles []stuckObstacle
	goesOn    bool // it will not wait for ever

	// The fields below say how the waiter waits for the call, once that is known.
	known bool
	key   string
	hold  *Hold  // of the lock of key
	by    *stuck // carries hold; nil: the call that would close the circle does
}

// stuckObstacle keeps a waiter from the lock of the key until one of the holds is released.
type stuckObstacle struct {
	key   string
	holds []*Hold // each is part of a handle
}

// deadlock returns the circle that the call closes, or nil if it closes none. The call has just
// begun to wait. A lock is not released while a call whose context carries it waits. A circle has
// no other links: at a free lock, the calls for which the first waiter waits pass that waiter.
func (tx *Txn) deadlock(w *Waiter) *Deadlock {
	nodes := tx.waitGraph(w)
	nodes.sweep((*waitGraph).release)
	nodes.sweep((*waitGraph).settle)
	first := nodes.order[0]
	if !first.known {
		return nil
	}
	d := new(Deadlock)
	var held Holder
	for node := first; node != nil; node = node.by {
		d.Steps = append(d.Steps, DeadlockStep{Waiter: node.waiter, Holds: held, Key: node.key})
		held = tx.holderOfHold(node.hold)
	}
	d.Steps[0].Holds = held
	return d
}

// waitGraph has a call, and the calls for which it waits, directly or through others, if these
// carry locks.
type waitGraph struct {
	order  []*stuck // the call first
	of     map[*Waiter]*stuck
	engine *Engine
}

func (tx *Txn) waitGraph(w *Waiter) *waitGraph {
	g := &waitGraph{of: make(map[*Waiter]*stuck), engine: tx.engine}
	g.add(w)
	for i := 0; i < len(g.order); i++ {
		node := g.order[i]
		for j := range node.waiter.claims {
			c := &node.waiter.claims[j]
			node.obstacles = append(node.obstacles, tx.stuckAt(node.waiter, c)...)
		}
		for _, obstacle := range node.obstacles {
			for _, hold := range obstacle.holds {
				for _, other := range tx.engine.carriers[hold.Owner] {
					if other.phase == standing {
						g.add(other)
					}
				}
			}
		}
	}
	return g
}

// add makes a node for the waiter, unless there is one.
func (g *waitGraph) add(w *Waiter) {
	if g.of[w] == nil {
		node := &stuck{waiter: w}
		g.of[w], g.order = node, append(g.order, node)
	}
}

// sweep calls look for the waiters, until it finds nothing more.
func (g *waitGraph) sweep(look func(g *waitGraph, node *stuck) (found bool)) {
	for found := true; found; {
		found = false
		for _, node := range slices.Backward(g.order) {
			if look(g, node) {
				found = true
			}
		}
	}
}

// release notes that the waiter will not wait for ever, and reports whether that is news. A slot
// may come from any holder that goes on, so a circle that has two ways may be closed by a call that
// is on one of them only: all waiters count as stuck until they are released.
func (g *waitGraph) release(node *stuck) bool {
	if node.goesOn || slices.ContainsFunc(node.obstacles, g.lasts) {
		return false
	}
	node.goesOn = true
	return true
}

// lasts reports whether all holds of the obstacle are carried by waiters that are not released.
func (g *waitGraph) lasts(obstacle stuckObstacle) bool {
	for _, hold := range obstacle.holds {
		if !slices.ContainsFunc(g.engine.carriers[hold.Owner], g.isStuck) {
			return false
		}
	}
	return true
}

// isStuck reports whether the waiter is in the graph, and is not released.
func (g *waitGraph) isStuck(w *Waiter) bool {
	node := g.of[w]
	return node != nil && !node.goesOn
}

// settle finds out how a waiter that is stuck waits for the call, given what is known of the
// others, and reports whether that is news.
func (g *waitGraph) settle(node *stuck) bool {
	if node.known {
		return false
	}
	for _, obstacle := range node.obstacles {
		if !g.lasts(obstacle) {
			continue
		}
		for _, hold := range obstacle.holds {
			if by, known := g.carrier(hold); known {
				node.known, node.key, node.hold, node.by = true, obstacle.key, hold, by
				return true
			}
		}
	}
	return false
}

// carrier returns the node of a waiter that carries the hold's lock and waits for the call, if one
// is known; nil stands for the call itself.
func (g *waitGraph) carrier(hold *Hold) (by *stuck, known bool) {
	if g.order[0].waiter.Carried.has(hold.Owner) {
		return nil, true
	}
	for _, other := range g.engine.carriers[hold.Owner] {
		if node := g.of[other]; node != nil && node.known {
			return node, true
		}
	}
	return nil, false
}

// stuckAt returns the handles that keep the waiter from the lock of its claim, as obstacles.
func (tx *Txn) stuckAt(w *Waiter, c *claim) []stuckObstacle {
	if w.Slot {
		return tx.stuckAtSlots(w)
	}
	against := w
	if w.Options.Mode == Shared && tx.behindExclusive(w, c) {
		// The waiter in front needs all shares of the lock released, and w comes after it.
		against = &Waiter{Session: w.Session, Options: LockOptions{Mode: Exclusive}}
	}
	var obstacles []stuckObstacle
	for _, hold := range tx.holdersAgainst(against, c) {
		if hold != nil {
			obstacles = append(obstacles, stuckObstacle{c.key, []*Hold{hold}})
		}
	}
	return obstacles
}

// behindExclusive reports whether the waiter stands behind an exclusive waiter, and can pass
// neither the first waiter of the queue nor the exclusive one when that has become the first.
func (tx *Txn) behindExclusive(w *Waiter, c *claim) bool {
	if c.state.shares.n == 0 || w.Session.looseShare(c.state) != nil {
		return false
	}
	for place := range c.state.queue.Places() {
		if place == &c.place {
			break
		}
		if first := place.Waiter; first.Options.Mode == Exclusive {
			return !tx.passes(w.Session, w.Carried, c.state) &&
				!tx.keepersOf(first, c.state).include(w.Session, w.Carried)
		}
	}
	return false
}

// stuckAtSlots returns what keeps the waiter from a slot: all holders of slots, if each has a
// handle and they have all that the limit allows. A lost slot counts as free here, because it
// becomes free when its delay ends.
func (tx *Txn) stuckAtSlots(w *Waiter) []stuckObstacle {
	slots, err := tx.rosterOf(w.prefix())
	if err != nil {
		return nil
	}
	all := stuckObstacle{key: w.claims[0].key}
	for _, hold := range tx.holdersAgainst(w, &w.claims[0]) {
		if hold == nil {
			return nil
		}
		all.holds = append(all.holds, hold)
	}
	if len(all.holds) < max(1, slots.limit) {
		return nil
	}
	slices.SortFunc(all.holds, func(a, b *Hold) int { return cmp.Compare(a.Key, b.Key) })
	return []stuckObstacle{all}
}

// holderOfHold returns the holder whose handle hold is part of.
func (tx *Txn) holderOfHold(hold *Hold) Holder {
	granted := tx.Get(hold.Key).Granted
	if one := tx.engine.shareOf(hold); one != nil {
		granted = one.row.Granted
	}
	return Holder{hold.Sequencer(), hold.Session.Row, granted}
}

// dismissDeadlocked dismisses the newest calls of each circle that a drop has closed. A drop closes
// a circle when it takes back a grant, so that the call waits again.
func (tx *Txn) dismissDeadlocked() {
	carrying := make(map[*Waiter]struct{})
	for _, list := range tx.engine.carriers {
		for _, w := range list {
			carrying[w] = struct{}{}
		}
	}
	newestFirst := slices.SortedFunc(maps.Keys(carrying), func(a, b *Waiter) int {
		return cmp.Or(b.Began.Compare(a.Began),
			compareIDs(a.Session.Row.ID, b.Session.Row.ID),
			cmp.Compare(a.claims[0].key, b.claims[0].key),
			cmp.Compare(b.claims[0].place.Ticket(), a.claims[0].place.Ticket()))
	})
	for _, w := range newestFirst {
		if w.phase != standing {
			continue
		}
		if found := tx.deadlock(w); found != nil {
			tx.dismiss(w, found)
		}
	}
}
