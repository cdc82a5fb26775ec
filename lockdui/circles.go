package lockdui

import "github.com/lockd/lockd"

// circles finds the sessions that wait for each other, directly or by way of others. It goes from
// each session to those that it waits for, as Tarjan's algorithm does: a session from which none
// reached earlier is reached again is the first of a circle, and those reached since are the rest.
// Between the requests for a lock and its holders it goes by way of the lock, so that a thousand
// requests and a thousand holders are no million of steps.
type circles struct {
	waits   map[vertex][]vertex
	reached map[vertex]int // in which order
	open    []vertex       // those reached that may be in one circle with others
	circle  map[vertex]int // the number of its circle, in which it may be alone
	found   bool           // whether any session is in a circle with another
}

// vertex is a session, or a lock that sessions hold.
type vertex struct {
	lockd.SessionID
	lock string
}

func circlesOf(requests []request) *circles {
	c := &circles{
		waits:   make(map[vertex][]vertex),
		reached: make(map[vertex]int), circle: make(map[vertex]int),
	}
	for _, r := range requests {
		from, lock := vertex{SessionID: r.From.ID}, vertex{lock: r.Key}
		switch {
		case r.Limit > 0: // any other slot of the semaphore would do
		case r.Ahead:
			c.add(from, r.to)
		default:
			c.waits[from] = append(c.waits[from], lock)
			if c.waits[lock] == nil {
				c.add(lock, r.to)
			}
		}
	}
	for v := range c.waits {
		if c.reached[v] == 0 {
			c.follow(v)
		}
	}
	return c
}

// add adds that the vertex waits for the sessions.
func (c *circles) add(v vertex, to []party) {
	for _, p := range to {
		c.waits[v] = append(c.waits[v], vertex{SessionID: p.ID})
	}
}

// have reports whether the wait is in a circle.
func (c *circles) have(e edge) bool {
	from, to := vertex{SessionID: e.From.ID}, vertex{SessionID: e.To.ID}
	return e.Limit == 0 && !e.own() && c.circle[from] == c.circle[to]
}

// follow returns the earliest of the open vertices that this one waits for, or is itself.
func (c *circles) follow(v vertex) (earliest int) {
	own := len(c.reached) + 1
	c.reached[v], c.open = own, append(c.open, v)
	earliest = own
	for _, to := range c.waits[v] {
		switch {
		case c.reached[to] == 0:
			earliest = min(earliest, c.follow(to))
		case c.circle[to] == 0:
			earliest = min(earliest, c.reached[to])
		}
	}
	for sessions := 0; earliest == own && c.circle[v] == 0; {
		last := c.open[len(c.open)-1]
		c.circle[last], c.open = own, c.open[:len(c.open)-1]
		if last.lock == "" {
			sessions++
		}
		c.found = c.found || sessions > 1
	}
	return earliest
}
