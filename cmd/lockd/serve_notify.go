package main

import (
	"errors"
	"net"
	"os"
)

// The states that systemd is told of.
const (
	notifyReady = "READY=1"
	notifyEnds  = "STOPPING=1"
)

// notify tells systemd, if it has started this process and waits for that, how the server is: one
// that is ready, or one that ends. Without systemd it does nothing.
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return errors.Join(err, conn.Close())
}
