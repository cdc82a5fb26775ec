package main

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// crowd keeps the number of connections within bounds: one too many costs the one that has been
// idle for longest its place, and if none is idle, the newcomer. Its method may be called by many
// goroutines.
type crowd struct {
	most int

	mu sync.Mutex // guards what follows

	all  map[net.Conn]*list.Element // the element in idle, nil while a request is served
	idle list.List                  // of net.Conn, those idle for longest in front
}

func newCrowd(most int) *crowd {
	return &crowd{most: most, all: make(map[net.Conn]*list.Element)}
}

// changed is told of what becomes of a connection.
func (c *crowd) changed(conn net.Conn, state http.ConnState) {
	victim := c.note(conn, state)
	if encrypted, ok := victim.(*tls.Conn); ok {
		victim = encrypted.NetConn() // to close the other waits for its client
	}
	if victim != nil {
		_ = victim.Close() // whoever reads from it finds out
	}
}

// note returns the connection to close, if there is one.
func (c *crowd) note(conn net.Conn, state http.ConnState) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.all[conn]; e != nil {
		c.idle.Remove(e)
	}
	switch state {
	case http.StateNew, http.StateIdle:
		c.all[conn] = c.idle.PushBack(conn)
	case http.StateActive:
		c.all[conn] = nil
	default:
		delete(c.all, conn)
	}
	if state != http.StateNew || len(c.all) <= c.most {
		return nil
	}
	victim := c.idle.Remove(c.idle.Front()).(net.Conn) // at least the newcomer is there
	c.all[victim] = nil
	return victim
}
