package rival

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
)

// Etcd is one etcd member inside this process.
type Etcd struct {
	server *embed.Etcd
	direct etcdClient // without a socket
	remote etcdClient // as from another process
}

// etcdClient is one way to call it.
type etcdClient struct {
	client  *clientv3.Client
	session *concurrency.Session
}

// EtcdSettings says how an Etcd is set.
func EtcdSettings() string {
	return "etcd: " + Version("go.etcd.io/etcd/server/v3") + ", one member embedded in this " +
		"process, called through v3client without a socket, and by clientv3 through one, no " +
		"logs, WAL synced; concurrency.Mutex, Lock + Unlock, one session for all"
}

// OpenEtcd starts a member that keeps its files in the folder, and waits until it is ready.
func OpenEtcd(folder string) (*Etcd, error) {
	config := embed.NewConfig()
	config.Dir = folder
	config.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	config.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	server, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	select {
	case <-server.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		server.Close()
		return nil, errors.New("etcd did not become ready within 30 s")
	}
	e := &Etcd{server: server}
	if err = e.connect(); err != nil {
		return nil, fmt.Errorf("connect: %w, close: %v", err, e.Close())
	}
	return e, nil
}

func (e *Etcd) connect() (err error) {
	e.direct.client = v3client.New(e.server.Server)
	e.remote.client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{e.server.Clients[0].Addr().String()}, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	for _, c := range []*etcdClient{&e.direct, &e.remote} {
		if c.session, err = concurrency.NewSession(c.client); err != nil {
			return err
		}
	}
	return nil
}

// Pair locks and unlocks the mutex of the key, without a socket.
func (e *Etcd) Pair(key string) error { return e.direct.pair(key) }

// RemotePair is Pair as clients of etcd do it: by gRPC through a socket.
func (e *Etcd) RemotePair(key string) error { return e.remote.pair(key) }

func (c *etcdClient) pair(key string) error {
	ctx := context.Background()
	mutex := concurrency.NewMutex(c.session, key)
	if err := mutex.Lock(ctx); err != nil {
		return err
	}
	return mutex.Unlock(ctx)
}

// Close ends the sessions and the member.
func (e *Etcd) Close() error {
	var errs []error
	for _, c := range []*etcdClient{&e.direct, &e.remote} {
		if c.session != nil {
			errs = append(errs, c.session.Close())
		}
		if c.client != nil {
			_ = c.client.Close() // without a connection it returns the error of its own context
		}
	}
	e.server.Close()
	return errors.Join(errs...)
}
