package main

import (
	"net"
	"testing"
)

// at is a listener at an address.
type at struct {
	net.Listener
	address *net.TCPAddr
}

func (l at) Addr() net.Addr { return l.address }

// Ensure that the URL of a link-local address has its zone, also if the system does not tell it,
// and that any other address stands in it as it is.
func TestServe_Host(t *testing.T) {
	for _, test := range []struct{ asked, got, want string }{
		{"[fe80::1%eth0]:0", "[fe80::1]:80", "[fe80::1%25eth0]:80"},
		{"[fe80::1%eth0]:0", "[fe80::1%eth0]:80", "[fe80::1%25eth0]:80"},
		{"[::1]:0", "[::1]:80", "[::1]:80"},
		{":0", "[::]:80", "[::]:80"},
		{"127.0.0.1:0", "127.0.0.1:80", "127.0.0.1:80"},
	} {
		asked, err := net.ResolveTCPAddr("tcp", test.asked)
		if err != nil {
			t.Fatal(err)
		}
		got, err := net.ResolveTCPAddr("tcp", test.got)
		if err != nil {
			t.Fatal(err)
		}
		if host := (listenAddress{port: asked}).host(at{address: got}); host != test.want {
			t.Errorf("%s: got %q, want %q", test.asked, host, test.want)
		}
	}
}
