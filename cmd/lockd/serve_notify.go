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

// notify tells systemd the state of the server, if systemd has started this process and waits for
// that: that the server is ready, or that it ends. Without systemd notify does nothing.
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
