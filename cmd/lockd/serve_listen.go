package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"
)

// socketScheme begins an address that is the path of a socket.
const socketScheme = "unix://"

// How long a server waits for the lock of its socket's folder, which any process can keep that may
// read the folder.
const (
	startPatience = 5 * time.Second
	endPatience   = time.Second
)

// listenAddress is where a server listens: on a port, or on a socket in the file system.
type listenAddress struct {
	port   *net.TCPAddr // nil: on the socket
	socket string       // its path
}

// listenAddressOf reads --http.
func listenAddressOf(cmd *cli.Command) (a listenAddress, err error) {
	text := cmd.String("http")
	if path, ok := strings.CutPrefix(text, socketScheme); ok {
		switch {
		case !socketsGuarded:
			return a, usage(cmd, "--http %s: on this system a socket in the file system has no "+
				"mode that keeps others away: listen on 127.0.0.1", text)
		case path == "":
			return a, usage(cmd, "--http %s has no path", text)
		case len(path) > maxSocketPath:
			return a, usage(cmd, "--http %s: the path has %d bytes, and on this system a socket's "+
				"may have %d", text, len(path), maxSocketPath)
		case cmd.IsSet("tls-cert"):
			return a, usage(cmd, "--tls-cert is for a port: a socket in the file system carries "+
				"no TLS")
		}
		return listenAddress{socket: path}, nil
	}
	if strings.Contains(text, "://") {
		return a, usage(cmd, "--http %s: give host:port alone, such as 127.0.0.1:8500, or %sPATH",
			text, socketScheme)
	}
	if strings.HasSuffix(text, ":") { // as from a variable that is not set; it would be any port
		return a, usage(cmd, "--http %s has no port behind the colon; 0 is for any", text)
	}
	if a.port, err = net.ResolveTCPAddr("tcp", text); err != nil {
		return a, usage(cmd, "--http: %w", err)
	}
	return a, nil
}

// isPrivate reports whether only programs on this machine can reach the address.
func (a listenAddress) isPrivate() bool { return a.port == nil || a.port.IP.IsLoopback() }

// listen returns a listener at the address, and its URL.
func (a listenAddress) listen(config *tls.Config) (net.Listener, string, error) {
	if a.port == nil {
		l, err := listenOnSocket(a.socket)
		return l, socketScheme + a.socket, err
	}
	l, err := net.ListenTCP("tcp", a.port)
	switch {
	case err != nil:
		return nil, "", fmt.Errorf("%w; --http chooses another address", err)
	case config != nil:
		return tls.NewListener(l, config), "https://" + a.host(l), nil
	}
	return l, "http://" + a.host(l), nil
}

// host returns where the listener listens, as it stands in a URL. The system may not tell the zone
// of a link-local address, without which nobody can connect.
func (a listenAddress) host(l net.Listener) string {
	at := *l.Addr().(*net.TCPAddr)
	at.Zone = a.port.Zone
	return (&url.URL{Host: at.String()}).String()[len("//"):]
}

// listenOnSocket listens on a socket that only the user of this process can connect to. An existing
// socket is replaced if no server listens on it.
func listenOnSocket(path string) (net.Listener, error) {
	unlock, err := lockFolder(path, startPatience)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, cause(err))
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l, err := bindSocket(path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return &socketListener{l, path}, nil
}

// removeStale removes the socket at the path if no server listens on it. The caller has the lock of
// the folder, so that no process removes the socket that another has just made.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return cause(err)
	case info.Mode()&fs.ModeSocket == 0:
		return errors.New("there is something else, which is not replaced; name another path")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		_ = conn.Close() // it was only to find out
		return errors.New("a server listens there already; end it, or name another path")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("whether a server listens there cannot be told: %w", err)
	}
	return cause(os.Remove(path))
}

// socketListener removes its socket when it is closed, unless another server listens there by then,
// or another process keeps the folder locked. The next server removes a socket that stays.
type socketListener struct {
	net.Listener
	path string
}

// Close closes the listener, and removes the socket.
func (l *socketListener) Close() error {
	err := l.Listener.Close()
	if errors.Is(err, net.ErrClosed) {
		return err
	}
	if unlock, lockErr := lockFolder(l.path, endPatience); lockErr == nil {
		// If another server has the path, the socket is that one's, and stays.
		_ = removeStale(l.path)
		unlock()
	}
	return err
}
