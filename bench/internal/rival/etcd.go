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

// Etcd is one etcd member inside this process, called without a socket.
type Etcd struct {
	server  *embed.Etcd
	client  *clientv3.Client
	session *concurrency.Session
}

// EtcdSettings says how an Etcd is set.
func EtcdSettings() string {
	return "etcd: " + Version("go.etcd.io/etcd/server/v3") + ", one member embedded in this " +
		"process, called through v3client without a socket, no logs, WAL synced; " +
		"concurrency.Mutex, Lock + Unlock, one session for all"
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
	e := &Etcd{server: server, client: v3client.New(server.Server)}
	if e.session, err = concurrency.NewSession(e.client); err != nil {
		return nil, fmt.Errorf("session: %w, close: %v", err, e.Close())
	}
	return e, nil
}

// Pair locks and unlocks the mutex of the key.
func (e *Etcd) Pair(key string) error {
	ctx := context.Background()
	mutex := concurrency.NewMutex(e.session, key)
	if err := mutex.Lock(ctx); err != nil {
		return err
	}
	return mutex.Unlock(ctx)
}

// Close ends the session and the member.
func (e *Etcd) Close() error {
	var err error
	if e.session != nil {
		err = e.session.Close()
	}
	_ = e.client.Close() // without a connection it returns the error of its own context
	e.server.Close()
	return err
}
