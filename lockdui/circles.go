package lockdui

import "github.com/lockd/lockd"

// circles finds the sessions that wait for each other, directly or by way of others. It goes from
// each session to those that it waits for, as Tarjan's algorithm does: a session from which none
// reached earlier is reached again is the first of a circle, and those reached since are the rest.
type circles struct {
	waits   map[lockd.SessionID][]lockd.SessionID
	reached map[lockd.SessionID]int // in which order
	open    []lockd.SessionID       // those reached that may be in one circle with others
	circle  map[lockd.SessionID]int // the number of its circle, in which it may be alone
}

func circlesOf(edges []edge) *circles {
	c := &circles{
		waits:   make(map[lockd.SessionID][]lockd.SessionID),
		reached: make(map[lockd.SessionID]int), circle: make(map[lockd.SessionID]int),
	}
	for _, e := range edges {
		if e.counts() {
			c.waits[e.From.ID] = append(c.waits[e.From.ID], e.To.ID)
		}
	}
	for id := range c.waits {
		if c.reached[id] == 0 {
			c.follow(id)
		}
	}
	return c
}

// counts reports whether the wait may be in a circle. A wait for a slot is in none, since any other
// slot of the semaphore would do.
func (e edge) counts() bool { return e.Limit == 0 && !e.own() }

// have reports whether the wait is in a circle.
func (c *circles) have(e edge) bool {
	return e.counts() && c.circle[e.From.ID] == c.circle[e.To.ID]
}

// follow returns the earliest of the open sessions that the session waits for, or is itself.
func (c *circles) follow(id lockd.SessionID) (earliest int) {
	own := len(c.reached) + 1
	c.reached[id], c.open = own, append(c.open, id)
	earliest = own
	for _, to := range c.waits[id] {
		switch {
		case c.reached[to] == 0:
			earliest = min(earliest, c.follow(to))
		case c.circle[to] == 0:
			earliest = min(earliest, c.reached[to])
		}
	}
	for earliest == own && c.circle[id] == 0 {
		last := len(c.open) - 1
		c.circle[c.open[last]], c.open = own, c.open[:last]
	}
	return earliest
}
