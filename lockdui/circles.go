package lockdui

import "github.com/lockd/lockd"

// circles finds the sessions that wait for each other, directly or by way of others. It goes from
// each session to the sessions that it waits for, as Tarjan's algorithm does. A session that leads
// back to no open session reached before it is the first of its circle; the open sessions reached
// after it are the rest. From the requests for a lock to its holders the search goes by way of the
// lock, so that a thousand requests and a thousand holders do not make a million steps.
type circles struct {
	waits   map[vertex][]vertex
	reached map[vertex]int // the place of the vertex in the order in which they were reached
	open    []vertex       // vertices that were reached, and whose circles are not yet known
	circle  map[vertex]int // the number of the vertex's circle, in which it may be alone
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

// add notes that the vertex waits for the sessions.
func (c *circles) add(v vertex, to []party) {
	for _, p := range to {
		c.waits[v] = append(c.waits[v], vertex{SessionID: p.ID})
	}
}

// have reports whether the two sessions of the wait are in one circle.
func (c *circles) have(e edge) bool {
	from, to := vertex{SessionID: e.From.ID}, vertex{SessionID: e.To.ID}
	return e.Limit == 0 && !e.own() && c.circle[from] == c.circle[to]
}

// follow returns the place of the earliest open vertex to which v leads, which may be v.
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
