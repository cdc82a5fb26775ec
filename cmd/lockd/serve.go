package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/consulapi"
)

// windUp is how long requests may go on after a signal. With the end of the database that makes
// less than 5 s.
const windUp = 3 * time.Second

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:      "serve",
		Category:  "a server",
		Usage:     "serve a database by Consul's HTTP API",
		ArgsUsage: " ",
		Description: "Its URL is printed on a line of standard output as soon as it accepts.\n" +
			"SIGINT and SIGTERM end it; sessions and locks stay in the file, with their TTLs\n" +
			"anew when it is served again. A session lives for one more of its TTLs before it\n" +
			"expires, as in Consul.\n\n" +
			"Without a token it listens on loopback addresses only, and without TLS too refuses\n" +
			"requests whose Host is a domain, as a page of a browser could send them. With one\n" +
			"every request has to bear it, in the header X-Consul-Token or as Authorization:\n" +
			"Bearer.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "http", Value: "127.0.0.1:8500",
				Usage: "`ADDRESS` to listen on; with port 0 the system chooses one"},
			&cli.StringFlag{Name: "data", Usage: "`FILE` of the database, made if there is none"},
			waitFlag(),
			&cli.BoolFlag{Name: "memory", Usage: "keep everything in memory, in place of --data"},
			&cli.StringFlag{Name: "node", Usage: "`NAME` of the node (default: the host's)"},
			&cli.StringFlag{Name: "node-id", Usage: "`UUID` of the node " +
				"(default: the one that the file has, or a random one)"},
			&cli.StringFlag{Name: "datacenter", Value: "dc1", Usage: "`NAME` of the datacenter"},
			&cli.StringFlag{Name: "token", Usage: "`TOKEN` that requests have to bear; others on " +
				"the machine can read a command line, so better a file"},
			&cli.StringFlag{Name: "token-file", Usage: "`FILE` that has the token"},
			&cli.StringFlag{Name: "tls-cert", Usage: "`FILE` of the certificate, and those up to " +
				"its authority, to serve https with"},
			&cli.StringFlag{Name: "tls-key", Usage: "`FILE` of the certificate's key"},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			if _, err := operands(cmd, 0, 0); err != nil {
				return err
			}
			s, err := serviceOf(cmd)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
			defer stop()
			// A second signal ends the process at once.
			context.AfterFunc(ctx, stop)
			return s.serve(ctx, cmd)
		},
	}
}

// service is what lockd serve has to do.
type service struct {
	address *net.TCPAddr
	path    string // empty: in memory
	token   string // empty: none is asked for
	tls     *tls.Config
	logger  *slog.Logger

	db  lockd.Options
	api consulapi.Options
}

// serviceOf reads the command line.
func serviceOf(cmd *cli.Command) (*service, error) {
	if err := checkTexts(cmd); err != nil {
		return nil, err
	}
	if err := checkNode(cmd); err != nil {
		return nil, err
	}
	s := &service{path: cmd.String("data")}
	s.logger = slog.New(slog.NewTextHandler(cmd.Root().ErrWriter, nil))
	if (s.path == "") != cmd.Bool("memory") {
		return nil, usage(cmd, "serve needs either --data FILE or --memory")
	}
	var err error
	if s.token, err = token(cmd); err != nil {
		return nil, err
	}
	if s.address, err = net.ResolveTCPAddr("tcp", cmd.String("http")); err != nil {
		return nil, usage(cmd, "--http: %w", err)
	}
	if s.token == "" && !s.address.IP.IsLoopback() {
		return nil, usage(cmd, "--http %s can be reached from other machines: give a "+
			"--token-file, or an address such as 127.0.0.1:8500", cmd.String("http"))
	}
	certificate, key := cmd.String("tls-cert"), cmd.String("tls-key")
	if (certificate == "") != (key == "") {
		return nil, usage(cmd, "one of --tls-cert and --tls-key is given without the other")
	}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(certificate, key)
		if err != nil {
			return nil, err
		}
		s.tls = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	opts, err := openOptions(cmd)
	if err != nil {
		return nil, err
	}
	s.db = *opts
	s.db.Node, s.db.Reopen, s.db.Logger = cmd.String("node"), lockd.KeepAll, s.logger
	if s.db.Node == "" {
		if s.db.Node, err = os.Hostname(); err != nil {
			return nil, err
		}
	}
	s.api = consulapi.Options{
		GraceTTLs: 1, NodeID: cmd.String("node-id"), Datacenter: cmd.String("datacenter"),
		Logger: s.logger,
	}
	return s, nil
}

// checkNode refuses what no node can have as its name or ID.
func checkNode(cmd *cli.Command) error {
	name, id := cmd.String("node"), cmd.String("node-id")
	if len(name) > lockd.MaxKeySize {
		return usage(cmd, "--node has %d bytes, more than %d", len(name), lockd.MaxKeySize)
	}
	if _, err := lockd.ParseSessionID(id); err != nil && id != "" { // which is a UUID too
		return usage(cmd, "--node-id %q is not a UUID, of the form %s", id,
			"01234567-89ab-cdef-0123-456789abcdef")
	}
	return nil
}

// serve serves until ctx ends.
func (s *service) serve(ctx context.Context, cmd *cli.Command) (err error) {
	var db *lockd.DB
	if s.path == "" {
		db, err = lockd.New(&s.db)
	} else {
		db, err = lockd.Open(s.path, &s.db)
	}
	if err != nil {
		return advisedOnFile(err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	api, err := consulapi.Handler(db, &s.api)
	if err != nil {
		return err
	}
	listener, err := net.ListenTCP("tcp", s.address)
	if err != nil {
		return fmt.Errorf("%w; --http chooses another address", err)
	}
	if s.token == "" { // any page in a browser could ask
		api = http.NewCrossOriginProtection().Handler(api)
		if s.tls == nil { // a certificate tells the browser whose the name is
			api = local(api)
		}
	}
	server := newServer(defaultLimits, s.token, s.logger, api)
	var accept net.Listener = listener
	scheme := "http"
	if s.tls != nil {
		scheme, accept = "https", tls.NewListener(listener, s.tls)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(accept) }()
	_, err = fmt.Fprintf(cmd.Root().Writer, "%s://%s\n", scheme, listener.Addr())
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-ended:
			return err
		}
	}
	err = errors.Join(err, server.stop(windUp))
	<-ended
	return err
}
