//go:build !unix || solaris || illumos || aix

package main

import (
	"errors"
	"net"
	"time"
)

// socketsGuarded says that the mode of a socket does not keep other users away, or that nothing
// tells apart two servers that make a socket at the same path.
const socketsGuarded = false

// maxSocketPath is how long the path of a socket may be: there are none.
const maxSocketPath = 0

func lockFolder(string, time.Duration) (unlock func(), err error) {
	return nil, errors.ErrUnsupported
}

func bindSocket(string) (net.Listener, error) { return nil, errors.ErrUnsupported }
