package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/lockd/lockd/bench/internal/measure"
	"github.com/lockd/lockd/bench/internal/report"
	"github.com/lockd/lockd/bench/internal/rival"
	"github.com/lockd/lockd/consulapi"
)

// overHTTP is P12: pairs by Consul's official client.
func overHTTP(b *bench) error {
	db, err := openOurs("", nil, nil)
	if err != nil {
		return err
	}
	defer db.Close()
	b.setting(rival.ConsulSettings())
	handler, err := consulapi.Handler(db.DB, nil)
	if err != nil {
		return err
	}
	for _, clients := range []int{1, 64} {
		if err := overLoopback(b, handler, clients); err != nil {
			return err
		}
		if err := throughTransport(b, db, clients); err != nil {
			return err
		}
	}
	return nil
}

// throughTransport compares the client without a socket with the library's own calls: what the
// client, the transport and the handler add to a pair. The client's part shows when it is answered
// at once.
func throughTransport(b *bench, db *ours, workers int) error {
	transport, err := consulapi.Transport(db.DB, nil)
	if err != nil {
		return err
	}
	client, err := rival.ThroughTransport(transport)
	if err != nil {
		return err
	}
	nothing, err := rival.ThroughNothing()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	keys := keysOf(workers * ownKeys)
	trials := []measure.Trial{
		b.crowdInRAM("lockd", workers, keys, db.pairOf),
		b.crowdInRAM("Transport", workers, keys, client.PairOf),
	}
	if b.extras() {
		trials = append(trials,
			b.crowdInRAM("client", workers, keys, nothing.PairOf),
			b.crowdInRAM("contexts", workers, keys, client.WithContext(ctx).PairOf))
	}
	figures, err := b.inTurn(trials...)
	if err != nil {
		return errors.Join(err, client.Close())
	}
	what := fmt.Sprintf("pair through Transport, clients: %d; beyond the library's own", workers)
	rows := []report.Row{
		{What: what, Bound: measure.AtMost(20_000)},
		{What: what + ", if answered true at once: the client's part"},
		{What: what + ", if a context may end it"},
	}
	for i, row := range rows[:len(trials)-1] {
		row.Target, row.Unit = "P12", report.Nanoseconds
		row.Figure = figures[i+1].Wall.Minus(figures[0].Wall)
		b.add(row)
	}
	return client.Close()
}

// overLoopback compares servers on sockets: lockd's, one that does nothing, and a Consul agent.
func overLoopback(b *bench, handler http.Handler, clients int) error {
	keys := keysOf(clients * ownKeys)
	address, stop, err := serve(handler)
	if err != nil {
		return err
	}
	defer stop()
	ours, err := rival.DialConsul(address, clients)
	if err != nil {
		return err
	}
	address, stopBare, err := serve(http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "true") }))
	if err != nil {
		return err
	}
	defer stopBare()
	bare, err := rival.DialBare(address, clients)
	if err != nil {
		return err
	}
	trials := []measure.Trial{
		b.crowdInRAM("lockd", clients, keys, ours.PairOf),
		b.crowdInRAM("bare", clients, keys, bare.PairOf),
	}
	agent, err := rival.OpenAgent(clients)
	switch {
	case err == nil:
		defer agent.Close()
		settings, err := agent.AgentSettings()
		if err != nil {
			return err
		}
		b.setting(settings)
		trials = append(trials, b.crowdInRAM("Consul", clients, keys, agent.PairOf))
	case !errors.Is(err, rival.ErrNoConsul):
		return err
	}
	missing := err
	figures, err := b.inTurn(trials...)
	if err != nil {
		return errors.Join(err, ours.Close())
	}
	what := fmt.Sprintf("pair over HTTP, loopback, clients: %d; times as fast", clients)
	b.add(faster("P12", what, measure.AtLeast(0.5), figures[0].Wall,
		"net/http that answers true", figures[1].Wall))
	row := report.Row{Target: "P12", What: what, Bound: measure.AtLeast(1.5),
		Rival: "Consul agent"}
	if missing == nil {
		row = faster("P12", what, row.Bound, figures[0].Wall, row.Rival, figures[2].Wall)
	} else {
		row.Missing = missing.Error()
	}
	b.add(row)
	return ours.Close()
}

// serve has the handler serve on a free port, until stop is called.
func serve(handler http.Handler) (address string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // it ends with ErrServerClosed, or the clients fail
	}()
	return listener.Addr().String(), func() {
		_ = server.Close() // nothing is under way
		<-done
	}, nil
}
