//go:build unix && !solaris && !illumos && !aix

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// socketsGuarded says that the mode of a socket keeps other users away.
const socketsGuarded = true

// maxSocketPath is how long the path of a socket may be; a zero byte ends it.
const maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

// folderPause is the time between two looks at the lock of a folder.
const folderPause = 10 * time.Millisecond

// lockFolder waits until no other process looks after a socket in the folder of the path, but not
// for longer than patience. unlock ends the lock.
func lockFolder(path string, patience time.Duration) (unlock func(), err error) {
	f, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	if err := flock(f, patience); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // which ends the lock
}

// flock waits for the lock of a folder.
func flock(folder *os.File, patience time.Duration) error {
	for began := time.Now(); ; time.Sleep(folderPause) {
		err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err != syscall.EWOULDBLOCK && err != syscall.EINTR:
			return err
		case time.Since(began) >= patience:
			return fmt.Errorf("another process keeps the folder %s locked; end it, or name a path "+
				"in a folder that only this user can read", folder.Name())
		}
	}
}

// bindSocket makes a socket of mode 0600 at the path and listens on it. Nobody can connect before
// it listens, so that there is no moment in which other users can.
func bindSocket(path string) (net.Listener, error) {
	syscall.ForkLock.RLock() // no child is to inherit it
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() { _ = f.Close() }() // the listener has a descriptor of its own
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	l, err := openSocket(f, path)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return l, nil
}

// openSocket gives a socket its mode, and then listens on it.
func openSocket(f *os.File, path string) (net.Listener, error) {
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, err
	}
	if err := syscall.Listen(int(f.Fd()), syscall.SOMAXCONN); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	return net.FileListener(f)
}
