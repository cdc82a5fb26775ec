package rival

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Redis is a redis-server that this process has started, on a Unix socket.
type Redis struct {
	server      *exec.Cmd
	version     string
	connections []*redisConnection
}

// ErrNoRedis says that there is no redis-server to compare with.
var ErrNoRedis = errors.New("no redis-server on PATH")

// OpenRedis starts a server that keeps its files in the folder, with a connection for each worker.
// It returns ErrNoRedis if there is no redis-server.
func OpenRedis(folder string, workers int) (*Redis, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, ErrNoRedis
	}
	version, err := exec.Command(program, "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("%s --version: %w", program, err)
	}
	socket := filepath.Join(folder, "redis.sock")
	r := &Redis{version: strings.TrimSpace(string(version))}
	r.server = exec.Command(program, "--port", "0", "--unixsocket", socket, "--dir", folder,
		"--save", "", "--appendonly", "yes", "--appendfsync", "always",
		"--maxclients", strconv.Itoa(workers+64))
	if err := r.server.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for range workers {
		connection, err := dialRedis(ctx, socket)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.connections = append(r.connections, connection)
	}
	return r, nil
}

// Settings says how the server is set.
func (r *Redis) Settings() string {
	return "Redis: " + r.version + "; appendonly yes, appendfsync always, save none, a Unix " +
		"socket, a connection for each worker; SET NX + DEL, written out by hand"
}

// Pair sets the key, which must not be there, and deletes it, on the worker's own connection.
func (r *Redis) Pair(worker int, key string) error {
	c := r.connections[worker]
	if err := c.call("+OK", "SET", key, "0123456789abcdef", "NX"); err != nil {
		return err
	}
	return c.call(":1", "DEL", key)
}

// Close ends the server.
func (r *Redis) Close() error {
	for _, c := range r.connections {
		_ = c.conn.Close() // nothing is under way
	}
	if err := r.server.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	return r.server.Wait()
}

// redisConnection speaks as much of the protocol as a pair takes.
type redisConnection struct {
	conn    net.Conn
	answers *bufio.Reader
	request []byte
}

// dialRedis tries until the server listens, or ctx ends.
func dialRedis(ctx context.Context, socket string) (*redisConnection, error) {
	for {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			return &redisConnection{conn: conn, answers: bufio.NewReader(conn)}, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("redis-server does not listen: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// call sends a command and expects this answer.
func (c *redisConnection) call(want string, words ...string) error {
	request := fmt.Appendf(c.request[:0], "*%d\r\n", len(words))
	for _, word := range words {
		request = strconv.AppendInt(append(request, '$'), int64(len(word)), 10)
		request = append(append(append(request, "\r\n"...), word...), "\r\n"...)
	}
	c.request = request
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	answer, err := c.answers.ReadSlice('\n')
	if err != nil {
		return err
	}
	if got := strings.TrimRight(string(answer), "\r\n"); got != want {
		return fmt.Errorf("redis: %s %s: got %q, want %q", words[0], words[1], got, want)
	}
	return nil
}
