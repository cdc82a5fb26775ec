package main

import (
	"container/list"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
)

// crowd keeps the number of connections within bounds, of all clients together and of each. If
// there is one too many, the connection that has been idle for longest is closed: one of the same
// client if that client has too many, and the new one if no other is idle. A connection is idle
// until a request of it is admitted, so that clients without the token take no place from clients
// with it. Its methods may be called by many goroutines.
type crowd struct {
	most, share int // of all clients, of each

	mu sync.Mutex // guards what follows

	members map[net.Conn]*member
	remotes map[string]*remote
	idle    list.List // of *member, those idle for longest in front
}

// member is a connection.
type member struct {
	conn net.Conn
	from *remote // nil: its address does not tell its client from others

	// Its places among all idle members, and its client's; nil while it is at work.
	idle, fromIdle *list.Element
}

// remote is where connections come from.
type remote struct {
	name        string
	connections int
	idle        list.List // of *member, those idle for longest in front
}

func newCrowd(most, share int) *crowd {
	return &crowd{
		most: most, share: share,
		members: make(map[net.Conn]*member), remotes: make(map[string]*remote),
	}
}

// clientOf returns the name of the client with the address, or an empty name if many clients share
// the address, as all programs of this machine do. A client mostly has all IPv6 addresses with the
// same first 64 bits, so these bits are its name. Link-local addresses begin alike for all clients.
func clientOf(address net.Addr) string {
	tcp, is := address.(*net.TCPAddr)
	if !is || tcp.IP.IsLoopback() {
		return ""
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() && !ip.IsLinkLocalUnicast() {
		return netip.PrefixFrom(ip, 64).Masked().String()
	}
	return ip.String()
}

// changed is called when the state of a connection has changed.
func (c *crowd) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	victim := c.note(conn, state)
	c.mu.Unlock()
	dismiss(victim)
}

// dismiss closes a connection, if there is one.
func dismiss(conn net.Conn) {
	if encrypted, ok := conn.(*tls.Conn); ok {
		conn = encrypted.NetConn() // closing the tls.Conn would wait for its client
	}
	if conn != nil {
		_ = conn.Close() // the goroutine that reads from it finds out
	}
}

// note returns the connection to close, if there is one.
func (c *crowd) note(conn net.Conn, state http.ConnState) net.Conn {
	m := c.members[conn]
	switch {
	case state == http.StateNew:
		return c.join(conn)
	case m == nil: // the connection was dismissed
	case state == http.StateIdle:
		c.rest(m)
	case state == http.StateClosed, state == http.StateHijacked:
		c.leave(m)
	}
	return nil
}

// join adds a new connection, and returns the connection to close, if there is one.
func (c *crowd) join(conn net.Conn) net.Conn {
	m := &member{conn: conn}
	c.members[conn] = m
	idle, tooMany := &c.idle, len(c.members) > c.most
	if name := clientOf(conn.RemoteAddr()); name != "" {
		m.from = c.remotes[name]
		if m.from == nil {
			m.from = &remote{name: name}
			c.remotes[name] = m.from
		}
		m.from.connections++
		if m.from.connections > c.share {
			idle, tooMany = &m.from.idle, true
		}
	}
	c.rest(m)
	if !tooMany {
		return nil
	}
	victim := idle.Front().Value.(*member) // at least the newcomer is there
	c.leave(victim)
	return victim.conn
}

// rest puts a member behind the other idle members.
func (c *crowd) rest(m *member) {
	c.work(m)
	m.idle = c.idle.PushBack(m)
	if m.from != nil {
		m.fromIdle = m.from.idle.PushBack(m)
	}
}

// work removes a member from the idle ones.
func (c *crowd) work(m *member) {
	if m.idle == nil {
		return
	}
	c.idle.Remove(m.idle)
	if m.from != nil {
		m.from.idle.Remove(m.fromIdle)
	}
	m.idle, m.fromIdle = nil, nil
}

// leave forgets a member.
func (c *crowd) leave(m *member) {
	c.work(m)
	delete(c.members, m.conn)
	if m.from == nil {
		return
	}
	if m.from.connections--; m.from.connections == 0 {
		delete(c.remotes, m.from.name)
	}
}

// admit is called when a request is let through: its connection is at work until it is idle.
func (c *crowd) admit(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.members[conn]; m != nil {
		c.work(m)
	}
}

// makeRoom closes the connection that has been idle for longest, if there is one.
func (c *crowd) makeRoom() {
	c.mu.Lock()
	var victim net.Conn
	if oldest := c.idle.Front(); oldest != nil {
		m := oldest.Value.(*member)
		c.leave(m)
		victim = m.conn
	}
	c.mu.Unlock()
	dismiss(victim)
}

// crowdListener is a listener that makes room when the system has no file left for one more
// connection.
type crowdListener struct {
	net.Listener
	crowd *crowd
}

// Accept waits for a connection. The server tries again a little later if there was no file for it.
func (l crowdListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
		l.crowd.makeRoom()
	}
	return conn, err
}
